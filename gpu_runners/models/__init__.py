"""The models a runner knows, label encoders and causal bases: their files, tokens and adapters, what computes with them
(torch or numpy), and the protocol in which answers are asked of any engine."""
