"""What every session's host does, in a terminal or not: prompts, requests, answers, rules, the stuck monitor."""
