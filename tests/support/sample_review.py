"""What a session changed, for pictures of its review: a tree of files, and comments on two lines."""

from kasmon.model.events import ReviewComment
from kasmon.model.review.comments import LoggedComment

DIFF = '''diff --git a/docs/login.md b/docs/login.md
--- a/docs/login.md
+++ b/docs/login.md
@@ -1,3 +1,4 @@
 # Log in

-Tokens never expire.
+Tokens expire after an hour.
+Log in again to renew one.
diff --git a/src/auth/session.py b/src/auth/session.py
--- a/src/auth/session.py
+++ b/src/auth/session.py
@@ -1,11 +1,14 @@ class Session:
 """Sessions of users who are logged in."""

 import time

-LIFE_S = 86400
+LIFE_S = 3600
+"""How long a token is valid, in seconds."""


 def is_valid(token: Token, now: float) -> bool:
-    return token.user is not None
+    """Whether *token* is of a user and has not expired."""
+    return token.user is not None and now < token.issued_at + LIFE_S


 def issue(user: str) -> Token:
@@ -40,7 +43,6 @@ def issue(user: str) -> Token:
     token = Token(user=user, issued_at=time.time())
     store.put(token)
-    print("issued", token)
     return token


diff --git a/src/auth/token.py b/src/auth/tokens.py
similarity index 100%
rename from src/auth/token.py
rename to src/auth/tokens.py
diff --git a/src/run.sh b/src/run.sh
old mode 100644
new mode 100755
diff --git a/logo.png b/logo.png
new file mode 100644
Binary files /dev/null and b/logo.png differ
'''
FILE = "src/auth/session.py"
COMMENTS = (
    LoggedComment(
        comment=ReviewComment(
            id="3fa9c1",
            file=FILE,
            line=5,
            last_line=6,
            lines=("LIFE_S = 3600", '"""How long a token is valid, in seconds."""'),
            text="Read this from the config.",
        ),
        at=1.0,
        line_now=5,
    ),
    LoggedComment(
        comment=ReviewComment(
            id="b20e77",
            file=FILE,
            line=42,
            last_line=42,
            side="old",
            lines=('    print("issued", token)',),
            text="Thanks!",
        ),
        at=2.0,
        receipt="r1",
    ),
)
