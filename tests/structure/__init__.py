"""The shape of the tree, measured: lines by room, loose files by folder, imports between packages, words in names."""
