"""Does it last: many streams for minutes, many turns one after another, clients that stop reading. `make load`."""
