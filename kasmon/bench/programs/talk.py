"""Program that prints a line N times a second: `talk.py N [stamp]`; with `stamp`, each line contains its time."""

import sys
import time


def main(rate: float, stamp: bool) -> None:
    number = 0
    while True:
        number += 1
        text = (
            f"T{time.monotonic_ns()}T"
            if stamp
            else f"\x1b[3{number % 8}mworking on step {number}\x1b[0m of many, still at it"
        )
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()
        time.sleep(1 / rate)


main(float(sys.argv[1]), sys.argv[2:] == ["stamp"])
