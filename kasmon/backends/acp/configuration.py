"""Change the model or mode of a running agent: all values are checked first, then set one after the other."""

import time
from collections.abc import Sequence

from acp import RequestError

from kasmon.backends.acp import errors
from kasmon.backends.acp.connection import AcpClient
from kasmon.backends.acp.session_start import few
from kasmon.backends.acp.settings import Setting, SettingOption, of_answer, to_set
from kasmon.backends.acp.translator import AcpTranslator
from kasmon.errors import RefusedError, SessionEndedError, UnableError
from kasmon.model.commands import Configure
from kasmon.model.events import Event


class ConfigurationChange:
    """One change of an agent's settings."""

    def __init__(self, client: AcpClient, translator: AcpTranslator, secrets: Sequence[str]) -> None:
        self._client = client
        self._translator = translator
        self._secrets = secrets

    def wanted(self, wish: Configure) -> list[tuple[Setting, str]]:
        """Return the settings in *wish*, all of which the agent offers.

        Raises:
            UnableError: if it does not offer one of them.
        """
        settings: list[tuple[Setting, str | None]] = [("model", wish.model), ("mode", wish.permission_mode)]
        wanted = [(setting, value) for setting, value in settings if value is not None]
        for setting, value in wanted:
            self._offer(setting, value)
        return wanted

    async def set(self, setting: Setting, value: str) -> list[Event]:
        """Set *setting* to *value*; return the resulting events.

        Raises:
            RefusedError: if the agent rejects it.
            SessionEndedError: if the agent has ended.
        """
        translator = self._translator
        method, params = to_set(setting, self._offer(setting, value), value, translator.session or "")
        try:
            answer = await self._client.call(method, params)
        except RequestError as error:
            said = errors.words(error, self._secrets)
            raise RefusedError(f"the agent did not accept the {setting} {value!r}: {said}") from error
        except ConnectionError as error:
            raise SessionEndedError(translator.session or "") from error
        now = of_answer(answer, translator.settings.chosen(setting, value))
        return translator.now_set(now, time.time())

    def _offer(self, setting: Setting, value: str) -> SettingOption:
        """Return the agent's offer for *setting*, which contains *value*."""
        offer, what = self._translator.settings.offer(setting), "model" if setting == "model" else "permission mode"
        if offer is None:
            raise UnableError(f"this agent does not support setting its {what}.")
        if value not in offer.values:
            raise UnableError(f"this agent has no {what} {value!r}.", hint=f"Available: {few(offer.values)}.")
        return offer
