"""Everything goes wrong at random, and from outside it is looked whether the ten promises hold: `make chaos`."""
