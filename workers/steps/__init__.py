"""The nine steps of a compile, one file a step, and the ablation that copies the first four. Each loads, computes and
saves, and may be run again from anywhere; what two of them need is no step and lies in a room beside."""
