"""The delivery state machine: the tables of docs/protocol.md as five pure functions.

    pending --lease--> leased --settle--> done | dropped | dead | pending (again, generation + 1)
    inbound:   leased, expired --lease--> leased (next attempt)          no attempts left: dead
    outbound:  leased, expired, or answer lost --> in_doubt --receipt--> done
                                                   in_doubt --window over--> leased (resend, once) | dead, by policy
    read and typing calls may be repeated, so they are never in doubt: a lost or expired one is pending again.

Only `create`, `lease`, `settle`, `replay` and `discard` return a record in another state. In each, the first row that
matches, from the top, applies. After a refused write they are called again with the new state, so each recognises by
the token what this same attempt has already written.
"""
