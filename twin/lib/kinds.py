"""Kinds of the functions that a script calls, for the recovery, the writer and the types of stored tensors."""

#: Functions whose results are codes.
QUANTISERS = ("integers", "floats", "blocks", "float_blocks")
#: Products whose sums are computed in floats.
PRODUCTS = ("dense", "convolution")
#: All products; `accumulated` adds up whole numbers.
SUMS = (*PRODUCTS, "accumulated")
#: Functions that put elements into another order or shape.
ARRANGING = ("part", "flatten", "reshape", "transpose", "start", "join", "take")
#: Functions whose results are elements of their arguments, or of the setting `fill`.
SELECTING = (*ARRANGING, "image", "patches", "max_pool", "canonical")
