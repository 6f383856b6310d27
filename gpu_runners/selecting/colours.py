"""The colours of the selection map: Okabe and Ito's palette without black and yellow. Colour-blind readers tell them
apart, and they show on white and on dark paper (https://jfly.uni-koeln.de/color/)."""

from gpu_runners.selecting.map import Fate

PALETTE = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00")
FATE_COLOURS = {Fate.KEPT: "#0072b2", Fate.DROPPED: "#8a6d3b", Fate.FLOOR: "#a8a8a8"}
DARK_FATE_COLOURS = {Fate.KEPT: "#4aa8e0", Fate.DROPPED: "#c9a86a", Fate.FLOOR: "#6f747c"}
PAPER, INK, FRAME = "#ffffff", "#1c1e21", "#d4d7dc"
DARK_PAPER, DARK_INK, DARK_FRAME = "#15171b", "#e7e9ec", "#3a3f47"
