"""A `claude` that lists the background sessions of the file `list.json` beside it, and shows one."""

CLAUDE = """\
#!{python}
import json, os, sys, time
folder = os.path.dirname(os.path.abspath(sys.argv[0]))
if sys.argv[1:] == ["agents", "--json", "--all"]:
    print(open(folder + "/list.json").read())
elif sys.argv[1] == "attach" and len(sys.argv) == 3:
    print("this is", sys.argv[2], flush=True)
    time.sleep(600)
elif sys.argv[1:] == ["--version"]:
    print("2.1.330 (Claude Code)")
else:
    sys.exit("unexpected: " + " ".join(sys.argv[1:]))
"""
