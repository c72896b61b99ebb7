"""Passkeys (WebAuthn): a logged-in browser adds one, and it logs in later. Checked by the package `webauthn`.

A challenge works once, for five minutes, for the purpose that it was made for.
"""

import hashlib
import time
from collections import OrderedDict
from typing import Final

import msgspec

from kasmon.errors import RefusedError
from kasmon.store.passkeys import Passkey, Passkeys
from kasmon.store.signed_records import new_id
from kasmon.store.web_logins import WebLogin

CHALLENGE_S: Final = 300.0
MAX_CHALLENGES: Final = 64
"""The most challenges that wait for an answer; then the oldest is dropped."""
NAME: Final = "kasmon"


class PasskeyHost(msgspec.Struct, frozen=True):
    """Under which name a browser reached the server."""

    name: str
    """The host name that passkeys are bound to."""
    origin: str


class PasskeyChecks:
    """Makes challenges, and checks what browsers answer. Blocks; the package takes 0.4 s to load."""

    def __init__(self, passkeys: Passkeys) -> None:
        self._passkeys = passkeys
        self._challenges: OrderedDict[str, tuple[str, float]] = OrderedDict()

    def creation_options(self, login: WebLogin, host: PasskeyHost, user: str) -> str:
        """Return what a browser needs to create a passkey for *login*, as JSON; *user* is the same for all of them."""
        import webauthn
        from webauthn.helpers.structs import (
            AuthenticatorSelectionCriteria,
            PublicKeyCredentialDescriptor,
            ResidentKeyRequirement,
            UserVerificationRequirement,
        )

        options = webauthn.generate_registration_options(
            rp_id=host.name,
            rp_name=NAME,
            user_name=NAME,
            user_id=hashlib.sha256(user.encode()).digest(),
            authenticator_selection=AuthenticatorSelectionCriteria(
                resident_key=ResidentKeyRequirement.PREFERRED, user_verification=UserVerificationRequirement.REQUIRED
            ),
            exclude_credentials=[
                PublicKeyCredentialDescriptor(id=each.credential) for each in self._passkeys.active(host.name)
            ],
        )
        self._expect(options.challenge, f"add {login.id} {host.name}")
        return webauthn.options_to_json(options)

    def register(self, login: WebLogin, host: PasskeyHost, credential: str, now: float) -> None:
        """Add the passkey that a browser created.

        Raises:
            RefusedError: if the browser's answer is wrong, or there are too many passkeys.
            UnavailableError: if it cannot be recorded.
        """
        import webauthn
        from webauthn.helpers import parse_registration_credential_json
        from webauthn.helpers.exceptions import WebAuthnException

        try:
            parsed = parse_registration_credential_json(credential)
            challenge = self._use_challenge(parsed.response.client_data_json, f"add {login.id} {host.name}")
            verified = webauthn.verify_registration_response(
                credential=parsed,
                expected_challenge=challenge,
                expected_rp_id=host.name,
                expected_origin=host.origin,
                require_user_verification=True,
            )
        except (WebAuthnException, msgspec.MsgspecError, ValueError, LookupError) as error:
            raise RefusedError("the passkey was not accepted.", hint="Try again.") from error
        self._passkeys.add(
            Passkey(
                id=new_id(),
                credential=verified.credential_id,
                public_key=verified.credential_public_key,
                sign_count=verified.sign_count,
                host=host.name,
                login=login.id,
                created_at=now,
                browser=login.browser,
            )
        )

    def request_options(self, host: PasskeyHost) -> str:
        """Return what a browser needs to log in, as JSON."""
        import webauthn
        from webauthn.helpers.structs import PublicKeyCredentialDescriptor, UserVerificationRequirement

        options = webauthn.generate_authentication_options(
            rp_id=host.name,
            allow_credentials=[
                PublicKeyCredentialDescriptor(id=each.credential) for each in self._passkeys.active(host.name)
            ],
            user_verification=UserVerificationRequirement.REQUIRED,
        )
        self._expect(options.challenge, f"log in {host.name}")
        return webauthn.options_to_json(options)

    def verify(self, host: PasskeyHost, credential: str, now: float) -> Passkey:
        """Return the passkey that signed the challenge, and record its use.

        Raises:
            RefusedError: if none did.
            OSError: if its use cannot be recorded.
        """
        import webauthn
        from webauthn.helpers import parse_authentication_credential_json
        from webauthn.helpers.exceptions import WebAuthnException

        try:
            parsed = parse_authentication_credential_json(credential)
            challenge = self._use_challenge(parsed.response.client_data_json, f"log in {host.name}")
            passkey = next(each for each in self._passkeys.active(host.name) if each.credential == parsed.raw_id)
            verified = webauthn.verify_authentication_response(
                credential=parsed,
                expected_challenge=challenge,
                expected_rp_id=host.name,
                expected_origin=host.origin,
                credential_public_key=passkey.public_key,
                credential_current_sign_count=passkey.sign_count,
                require_user_verification=True,
            )
        except (WebAuthnException, msgspec.MsgspecError, ValueError, LookupError, StopIteration) as error:
            raise RefusedError("the passkey was not accepted.", hint="Try again, or log in by a link.") from error
        if not self._passkeys.use(passkey.id, verified.new_sign_count, now):
            raise RefusedError("the passkey was revoked.", hint="Log in by a link.")
        return passkey

    def _expect(self, challenge: bytes, purpose: str) -> None:
        self._challenges[challenge.hex()] = purpose, time.monotonic() + CHALLENGE_S
        while len(self._challenges) > MAX_CHALLENGES:
            self._challenges.popitem(last=False)

    def _use_challenge(self, client_data: bytes, purpose: str) -> bytes:
        """Use up the challenge that a browser answered. Raises `LookupError` if it was not made for *purpose*."""
        from webauthn.helpers import base64url_to_bytes

        challenge = base64url_to_bytes(msgspec.json.decode(client_data, type=_ClientData).challenge)
        made_for, until = self._challenges.pop(challenge.hex())
        if made_for != purpose or time.monotonic() >= until:
            raise LookupError(purpose)
        return challenge


class _ClientData(msgspec.Struct, frozen=True):
    """What the browser signed."""

    challenge: str
