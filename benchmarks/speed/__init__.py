"""Measure the speed of the fastgae that is installed: the gate and the figures, and reports about data and GPUs.

``python benchmarks`` starts them. What they share lies here: the table of rows, their arrays, the calls on them, the
timer, and the description of the machine.
"""
