"""The beta distribution's integrals and Student's quantile, from scipy, which is imported at the first use: loading it
takes as long as the rest of a web process's start, and that seldom needs it."""


def betaincc(a: float, b: float, x: float) -> float:
    """The upper tail of Beta(a, b) at x."""
    from scipy.special import betaincc as tail

    return float(tail(a, b, x))


def betaincinv(a: float, b: float, p: float) -> float:
    """Return the point at which the lower tail of Beta(a, b) is p."""
    from scipy.special import betaincinv as quantile

    return float(quantile(a, b, p))


def betaln(a: float, b: float) -> float:
    """Natural log of the beta function."""
    from scipy.special import betaln as log_beta

    return float(log_beta(a, b))


def student_quantile(df: float, p: float) -> float:
    """Return the point at which the lower tail of Student's t with `df` degrees of freedom is p."""
    from scipy.special import stdtrit

    return float(stdtrit(df, p))
