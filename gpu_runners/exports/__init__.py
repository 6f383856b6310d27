"""Students in the formats of other libraries, in folders that say by digest which `.kolm` they were made of."""
