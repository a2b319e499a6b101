"""The only place that looks at shape, strides and flags, and with ``_interop``, which reads arrays, at dtypes.

A call as the caller made it is checked argument by argument (arguments), against the shape of the first one (frame) and
as a whole (checks). Then its arrays become matrices of one layout (memory).
"""
