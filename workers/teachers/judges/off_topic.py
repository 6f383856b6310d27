"""Messages that belong to hardly any slice of any task: negative controls for a family that has no far draft yet.

They are easier to refuse than a draft of a neighbouring slice, so a judge looks better against them than it is.
"""

OFF_TOPIC = (
    "The third moon of the gas giant is tidally locked and has no atmosphere to speak of.",
    "Fold the egg whites into the batter in three goes, or the sponge will not rise.",
    "In the second movement the oboe takes over the theme a fifth lower.",
    "Prune the vines back to two buds before the sap rises in late winter.",
    "The treaty of 1648 left the river tolls to the bishop and his heirs.",
    "If n is odd, then n squared leaves the remainder one when divided by eight.",
    "Knight to f6 gives black a slow but solid middle game.",
    "Granite weathers into clay as its feldspar loses potassium to rain water.",
    "Cast on forty stitches and knit the first six rows in garter stitch.",
    "The heron stands on one leg in the shallows until the tide turns.",
    "Tune the low string down to D and let it ring under the melody.",
    "A beam that is fixed at both ends sags a quarter as much in the middle.",
    "The glaze crackled because the kiln cooled faster than the clay could shrink.",
    "Whales sleep with one half of the brain at a time, near the surface.",
    "The keystone goes in last, and only then may the wooden frame be struck.",
    "At dawn the caravan left the oasis with two hundred camels and no water to spare.",
)
