"""ONNX graphs made from numpy weights, node by node: no export by torch, no tracing."""
