"""Measure the speed of the fastgae that is installed: the suite, the gate, the figures and the yardstick.

The commands beside this package start them. What they share lies here: the table of rows, their arrays, the calls on
them, the timer, and the description of the machine.
"""
