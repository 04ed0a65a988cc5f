"""The delivery state machine: the tables of docs/protocol.md as five pure functions.

    pending --lease--> leased --settle--> done | dropped | dead | pending (again, generation + 1)
    inbound:   leased, expired --lease--> leased (next attempt)          no attempts left: dead
    outbound:  leased, expired, or answer lost --> in_doubt --receipt--> done
                                                   in_doubt --window over--> leased (resend, once) | dead, by policy
    read and typing calls may be repeated, so they are never in doubt: what is lost or expired of them is pending.

`create`, `lease`, `settle`, `replay` and `discard` are the only functions that return a record in another state.
In each the first row that matches, from the top, applies. They are called again from the new state when a write
was refused, so each recognises what this same attempt has already written by its token.
"""
