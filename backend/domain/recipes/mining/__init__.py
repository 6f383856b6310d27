"""Recipe packs made from observed answers: runs and copy rules are counted, calibrated and chosen by what they save."""
