"""The parts of an exported module that are the same for every list. `$...$` is filled in by `export`."""

WORDS = """
const TYPES = new Uint8Array(65536), LOWER = new Uint16Array(65536);
const LETTER = 0, SEPARATOR = 1, DROPPED = 2, SINGLE = 3;
{
  const alphabet = $ALPHABET$;
  for (let unit = 0; unit < 65536; unit++) LOWER[unit] = unit;
  for (const [first, last] of alphabet.singles) TYPES.fill(SINGLE, first, last + 1);
  for (const [first, last] of alphabet.separators) TYPES.fill(SEPARATOR, first, last + 1);
  for (const unit of alphabet.dropped) TYPES[unit] = DROPPED;
  for (const [first, last, shift] of alphabet.lowered)
    for (let unit = first; unit <= last; unit++) LOWER[unit] = unit + shift;
}

const PATTERNS = $PATTERNS$;
"""
