"""The usage limits of accounts: what agents reported of each (`window`), and the accounts of a fleet (`account`)."""
