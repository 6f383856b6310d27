"""The guarantees of the picks of each method: stated on the report, empty where nothing is.

top_k, all          maximal by definition
facility_location   greedy on a monotone submodular function: Nemhauser, Wolsey and Fisher 1978
k_center            farthest-first in a metric (the chord between unit vectors): Gonzalez 1985
diverse             none: with the nearest-pick penalty the gain depends on the order of picking, so it is no set
                    function; the pair sum is submodular but neither monotone nor of one sign
dpp                 none in general: log det is submodular, and monotone only if no pick lowers the determinant
representative      none: what is far from all others is left out of its greedy
two_step            none: clusters first, scores second, no common objective
"""

import math

from backend.domain.selection.options import Method, Options, Penalty

_WEIGHTED = frozenset({Method.DIVERSE, Method.DPP, Method.FACILITY_LOCATION})
_TOP_K = "the greatest sum of scores of any K candidates"
_GUARANTEES = {
    Method.TOP_K: _TOP_K,
    Method.FACILITY_LOCATION: "at least 1 - 1/e of the greatest value of the objective for any K candidates",
    Method.K_CENTER: "a coverage radius (as a chord, a right angle at most) of at most twice the least for any K",
    Method.ALL: "everything is kept",
}


def guarantee_of(options: Options) -> str:
    """One clause, or "" where no bound holds. Every bound is over the candidates above the score floor, for each label
    by itself where K is shared out over labels, and holds without a minimum distance."""
    if options.min_distance > 0:
        return ""
    if options.method in _WEIGHTED and options.diversity_lambda == 0:
        return _TOP_K
    if options.method is Method.DIVERSE and math.isinf(options.diversity_lambda):
        return _GUARANTEES[Method.K_CENTER] if options.penalty is Penalty.NEAREST else ""
    return _GUARANTEES.get(options.method, "")
