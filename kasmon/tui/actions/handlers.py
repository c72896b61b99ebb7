"""The handler of each row of the key table that the app runs, in the order of the table.

The rows of a screen, a dialog box or an input are handled there: its `handlers` map the row's id to the method.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from kasmon.tui.actions.general import GeneralActions
from kasmon.tui.actions.sandbox import SandboxActions
from kasmon.tui.actions.session import SessionActions
from kasmon.tui.actions.transcript import TranscriptActions

IN_BOX: Final = (
    *("run_code", "interpreter", "read_run"),
    *("submit", "newline", "submit_later", "history_back", "history_on", "history_search"),
)


def build_handlers(
    general: GeneralActions, session: SessionActions, sandbox: SandboxActions, transcript: TranscriptActions
) -> Mapping[str, Callable[[], None]]:
    """Return the handler of each action that the app runs, by the action's id."""
    app, in_transcript = general.app, transcript.on_view
    on_selected, on_agent = session.on_selected, session.on_agent
    return {
        "down": lambda: app.main_view.table.move(1),
        "up": lambda: app.main_view.table.move(-1),
        "page_down": lambda: app.main_view.table.move_page(1),
        "page_up": lambda: app.main_view.table.move_page(-1),
        "top": lambda: app.main_view.table.select_index(0),
        "bottom": lambda: app.main_view.table.select_index(len(app.main_view.table.items)),
        "next": general.select_next,
        "next_inside": general.open_next,
        "open": session.open,
        "inbox": lambda: app.permissions.open(),
        "all_requests": lambda: app.permissions.open_list(),
        "new": general.open_new_session,
        "adopt": general.adopt,
        "message": on_agent(session.write_message, or_hibernated=True),
        "interrupt": on_agent(session.interrupt),
        "stop": on_agent(session.stop),
        "hibernate": on_agent(session.hibernate),
        "hibernate_idle": session.hibernate_idle,
        "attach": on_selected(session.attach),
        "freeze": sandbox.freeze,
        "wake": sandbox.wake,
        "pause_box": sandbox.pause_box,
        "keep": sandbox.create_checkpoint,
        "fork": sandbox.fork,
        "sandbox": sandbox.open_sandbox,
        "freeze_all": sandbox.freeze_all,
        "restart": on_selected(session.restart),
        "log_in": on_selected(session.log_in),
        "move": on_selected(session.move),
        "explain": on_selected(session.explain),
        "export": on_selected(session.export),
        "rename": on_selected(session.rename),
        "tag": on_selected(session.tag),
        "forget": on_selected(session.forget),
        "mark_viewed": on_selected(session.mark_viewed),
        "diff": on_selected(session.diff),
        "finish": lambda: app.finish.open(),
        "send_feedback": on_agent(session.send_feedback),
        "broadcast": general.broadcast,
        "filter": lambda: app.main_view.begin_filter(app.keys),
        "show_all": lambda: app.main_view.show_all() if app.main_view.table.view.filter else transcript.follow_esc(),
        "filter_keep": lambda: app.main_view.end_filter(kept=True),
        "filter_drop": lambda: app.main_view.end_filter(kept=False),
        "search": lambda: app.search.open(),
        "sort": general.sort,
        "waves": general.toggle_waves,
        "group": general.group,
        "save_filter": general.save_filter,
        "tab_on": partial(general.change_tab, 1),
        "tab_back": partial(general.change_tab, -1),
        "columns": general.choose_columns,
        "board": lambda: app.plan_board.open(),
        "fold": lambda: app.main_view.table.fold(shut=True),
        "unfold": lambda: app.main_view.table.fold(shut=False),
        "preview": lambda: app.main_view.toggle_preview(),
        "pin": lambda: app.main_view.pin(),
        "preview_up": lambda: app.session_pane.scroll(-1),
        "preview_down": lambda: app.session_pane.scroll(1),
        "leave_focus": lambda: app.session_pane.leave(),
        **{action: partial(transcript.use_box, action) for action in IN_BOX},
        "break_off": transcript.break_off,
        "show_image": in_transcript(transcript.show_image),
        "paste_image": transcript.paste_image,
        "edit_earlier": transcript.edit_earlier,
        "read": in_transcript(lambda shown: shown.read()),
        "queue": in_transcript(transcript.queue),
        "read_up": lambda: app.session_pane.scroll(-1),
        "read_down": lambda: app.session_pane.scroll(1),
        "leave_prompt": transcript.leave_prompt,
        "read_line_down": in_transcript(lambda shown: shown.screen_of_events.move(1)),
        "read_line_up": in_transcript(lambda shown: shown.screen_of_events.move(-1)),
        "read_page_down": in_transcript(lambda shown: shown.screen_of_events.turn_page(1)),
        "read_page_up": in_transcript(lambda shown: shown.screen_of_events.turn_page(-1)),
        "read_to_top": in_transcript(lambda shown: shown.screen_of_events.go_to_top()),
        "read_to_end": in_transcript(lambda shown: shown.screen_of_events.go_to_last()),
        "turn_back": in_transcript(lambda shown: transcript.jump(shown, -1)),
        "turn_on": in_transcript(lambda shown: transcript.jump(shown, 1)),
        "find": in_transcript(lambda shown: shown.begin_find()),
        "find_on": in_transcript(lambda shown: transcript.find_next(shown, down=False)),
        "find_back": in_transcript(lambda shown: transcript.find_next(shown, down=True)),
        "toggle": in_transcript(transcript.toggle),
        "copy": in_transcript(transcript.copy),
        "copy_answer": in_transcript(transcript.copy_answer),
        "read_image": transcript.read_image,
        "open_link": in_transcript(transcript.open_link),
        "export_turn": in_transcript(transcript.export_turn),
        "share": transcript.share,
        "write": in_transcript(lambda shown: shown.write()),
        "stop_reading": transcript.stop_reading,
        "find_keep": in_transcript(lambda shown: shown.end_find(kept=True)),
        "find_drop": in_transcript(lambda shown: shown.end_find(kept=False)),
        "queue_down": in_transcript(lambda shown: shown.receipts.move(1)),
        "queue_up": in_transcript(lambda shown: shown.receipts.move(-1)),
        "queue_later": in_transcript(lambda shown: shown.receipts.shift(1)),
        "queue_sooner": in_transcript(lambda shown: shown.receipts.shift(-1)),
        "queue_change": in_transcript(lambda shown: shown.receipts.change()),
        "queue_drop": in_transcript(lambda shown: shown.receipts.withdraw()),
        "leave_queue": in_transcript(lambda shown: shown.write()),
        "read_story": transcript.read_story,
        "configure": transcript.configure,
        "machines": general.open_machines,
        "settings": general.open_settings,
        "help": general.help,
        "palette": lambda: app.action_command_palette(),
        "quit": general.quit,
    }
