"""Widths of the reductions over the elements of an iteration, which golden and hardware share.

The sum is exact: it counts units of 2**-24, of which every finite binary16 number is a multiple, and is rounded once.
"""

UNIT_BITS = 24  #: Fraction bits of a sum: the unit is the smallest binary16 number.
ELEMENT_BITS = 41  #: Bits of one finite element in these units, sign included.
TOTAL_BITS = ELEMENT_BITS + 16  #: Bits of the sum of as many elements as Rows can count.
