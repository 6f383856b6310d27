"""BERT and RoBERTa as ONNX: the graph that exports write and answers are computed with."""
