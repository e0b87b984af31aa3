"""`make bench`: what the gateway costs, beside what its peers cost, in one run on one machine.

bodies    the request bodies
script    what the upstream double says, as one server or another spells it
upstream  the paced upstream double, a process of its own
client    the two kinds of client: one that asks again and again, one that reads a stream
peers     how each server is installed and started
process   a started server: its CPU time and memory, children included
measure   one measurement of one server
cases     which measurements a run takes
report    median, spread, ratios, bars, the table
plot      the picture, from the JSON of a run
run       the command line
"""
