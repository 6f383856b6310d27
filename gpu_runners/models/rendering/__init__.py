"""Chat templates rendered in a process apart: they come with a base, whose name any tenant's spec may give."""
