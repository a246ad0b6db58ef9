-- +goose Up

-- SQLite compares and sorts text byte by byte unless told otherwise. Times are microseconds since 1970 in UTC, and
-- booleans are 0 and 1: it has a type for neither.

-- The one row that carries the number of the last revision. Where the audit trail ends is kept here too, so that a tail
-- that was cut off is missed.
CREATE TABLE head (
    one      INTEGER PRIMARY KEY DEFAULT 1 CHECK (one = 1),
    revision INTEGER NOT NULL,
    lineage  TEXT    NOT NULL, -- identity of this history, born with it
    records  INTEGER NOT NULL, -- how many the audit trail has
    seal     TEXT    NOT NULL  -- of the last of them; '' when there is none
) STRICT;
INSERT INTO head (revision, lineage, records, seal) VALUES (0, lower(hex(randomblob(16))), 0, '');

-- The histories that this one may take the place of.
CREATE TABLE replaced (
    lineage TEXT NOT NULL PRIMARY KEY
) STRICT;

-- A domain and its newest settings need each other, so the reference is checked at the end of the transaction.
CREATE TABLE domains (
    name              TEXT    NOT NULL PRIMARY KEY,
    secret            BLOB    NOT NULL CHECK (length(secret) = 16),
    revision          INTEGER NOT NULL, -- the last one that touched the domain or one of its rules
    settings_revision INTEGER,          -- the last one that touched its settings; NULL: none did
    FOREIGN KEY (name, settings_revision) REFERENCES domain_states (domain, revision) DEFERRABLE INITIALLY DEFERRED
) STRICT;

-- Immutable: what each revision made of the settings it touched.
CREATE TABLE domain_states (
    domain   TEXT    NOT NULL REFERENCES domains (name),
    revision INTEGER NOT NULL,
    action   TEXT    NOT NULL,
    settings TEXT    NOT NULL, -- JSON
    PRIMARY KEY (domain, revision)
) STRICT;

-- A rule's identity, and which of its states is the newest. A rule and its first state need each other, as above.
CREATE TABLE rules (
    uid      TEXT    NOT NULL PRIMARY KEY,
    domain   TEXT    NOT NULL REFERENCES domains (name),
    name     TEXT    NOT NULL,
    revision INTEGER NOT NULL,
    FOREIGN KEY (uid, revision) REFERENCES rule_states (uid, revision) DEFERRABLE INITIALLY DEFERRED
) STRICT;
CREATE UNIQUE INDEX rules_by_name ON rules (domain, name);
CREATE INDEX rules_by_revision ON rules (revision);

-- Immutable.
CREATE TABLE versions (
    uid      TEXT    NOT NULL REFERENCES rules (uid),
    number   INTEGER NOT NULL CHECK (number > 0),
    spec     TEXT    NOT NULL,
    revision INTEGER NOT NULL, -- the one that brought it
    PRIMARY KEY (uid, number)
) STRICT;

-- Immutable: what each revision made of each rule it touched. One with neither stable nor candidate was deleted.
CREATE TABLE rule_states (
    uid       TEXT    NOT NULL REFERENCES rules (uid),
    revision  INTEGER NOT NULL,
    action    TEXT    NOT NULL,
    stable    INTEGER,
    candidate INTEGER,
    percent   INTEGER NOT NULL CHECK (percent BETWEEN 0 AND 10000),
    salt      INTEGER NOT NULL, -- an unsigned number's bits
    epoch     INTEGER NOT NULL,
    paused    INTEGER NOT NULL,
    overrides TEXT    NOT NULL, -- JSON
    plan      TEXT    NOT NULL, -- JSON; '': none
    PRIMARY KEY (uid, revision),
    FOREIGN KEY (uid, stable) REFERENCES versions (uid, number),
    FOREIGN KEY (uid, candidate) REFERENCES versions (uid, number)
) STRICT;

-- Immutable. Numbered by itself, because not every record has a revision.
CREATE TABLE audit (
    number   INTEGER PRIMARY KEY CHECK (number > 0), -- 1, 2, … without gaps
    revision INTEGER UNIQUE,      -- NULL: none was made
    refused  TEXT    NOT NULL,    -- why
    domain   TEXT    NOT NULL,
    at       INTEGER NOT NULL,
    actor    TEXT    NOT NULL,
    verified INTEGER NOT NULL,
    action   TEXT    NOT NULL,
    target   TEXT    NOT NULL,
    message  TEXT    NOT NULL,
    detail   TEXT    NOT NULL,
    before   TEXT    NOT NULL, -- JSON, its bytes kept
    after    TEXT    NOT NULL,
    seal     TEXT    NOT NULL, -- over the record and the seal before it
    key      TEXT    UNIQUE    -- of what may be reported twice, and is kept once
) STRICT;
CREATE INDEX audit_by_domain ON audit (domain, number);
CREATE INDEX audit_by_target ON audit (target, number);

CREATE TABLE credentials (
    id      TEXT    NOT NULL PRIMARY KEY,
    kind    TEXT    NOT NULL,
    hash    TEXT    NOT NULL UNIQUE,
    name    TEXT    NOT NULL,
    role    TEXT    NOT NULL,
    domains TEXT    NOT NULL, -- JSON; null: all
    created INTEGER NOT NULL,
    expires INTEGER,          -- NULL: never
    revoked INTEGER           -- NULL: it is not
) STRICT;

-- Browsers in which a credential has signed in.
CREATE TABLE sessions (
    hash       TEXT    NOT NULL PRIMARY KEY,
    credential TEXT    NOT NULL REFERENCES credentials (id),
    created    INTEGER NOT NULL,
    expires    INTEGER NOT NULL
) STRICT;
CREATE INDEX sessions_by_credential ON sessions (credential, created);
CREATE INDEX sessions_by_end ON sessions (expires);

-- Rules of which no alert is sent until a time.
CREATE TABLE silences (
    domain   TEXT    NOT NULL,
    rule     TEXT    NOT NULL,
    at       INTEGER NOT NULL,
    until    INTEGER NOT NULL,
    actor    TEXT    NOT NULL,
    verified INTEGER NOT NULL,
    message  TEXT    NOT NULL,
    PRIMARY KEY (domain, rule)
) STRICT;

-- The one row that says when all rules were last looked at. A leader that knows another time has been replaced.
CREATE TABLE alert_rounds (
    one     INTEGER PRIMARY KEY DEFAULT 1 CHECK (one = 1),
    at      INTEGER NOT NULL,
    settled INTEGER NOT NULL -- up to then what was counted is part of what is usual
) STRICT;
INSERT INTO alert_rounds (at, settled) VALUES (-62135596800000000, -62135596800000000); -- the year 1

-- What watches each version of a rule.
CREATE TABLE detectors (
    uid     TEXT    NOT NULL,
    version INTEGER NOT NULL,
    state   TEXT    NOT NULL, -- JSON
    PRIMARY KEY (uid, version)
) STRICT;

CREATE TABLE alerts (
    id       TEXT    NOT NULL PRIMARY KEY,
    domain   TEXT    NOT NULL,
    since    INTEGER NOT NULL,
    resolved INTEGER,         -- NULL: it fires
    facts    TEXT    NOT NULL -- JSON
) STRICT;
CREATE INDEX alerts_by_end ON alerts (resolved);

-- What the receivers of alerts have been told.
CREATE TABLE alert_deliveries (
    alert  TEXT NOT NULL REFERENCES alerts (id) ON DELETE CASCADE,
    target TEXT NOT NULL,
    status TEXT NOT NULL,
    PRIMARY KEY (alert, target, status)
) STRICT;

CREATE TABLE nodes (
    id          TEXT    NOT NULL,
    domain      TEXT    NOT NULL,
    program     TEXT    NOT NULL,
    identity    TEXT    NOT NULL, -- who opened its stream
    level       INTEGER NOT NULL,
    connected   INTEGER NOT NULL,
    departed    INTEGER NOT NULL,
    stream      INTEGER NOT NULL,
    seen        INTEGER NOT NULL,
    lineage     TEXT    NOT NULL,
    sent        INTEGER NOT NULL,
    acked       INTEGER NOT NULL,
    nacked      INTEGER NOT NULL,
    nack_reason TEXT    NOT NULL,
    refused     TEXT    NOT NULL, -- JSON
    break_glass TEXT    NOT NULL, -- JSON
    PRIMARY KEY (id, domain)
) STRICT;

-- The newest revision that some node of a feature level has in force, of a rule or ('') of the whole domain.
CREATE TABLE taken (
    domain   TEXT    NOT NULL,
    rule     TEXT    NOT NULL,
    level    INTEGER NOT NULL,
    revision INTEGER NOT NULL,
    PRIMARY KEY (domain, rule, level)
) STRICT;

-- What the nodes counted. Unlike the history it is removed when its time has come.

-- One life of a node, and how far its windows are stored: the row that makes each of them count once.
CREATE TABLE sources (
    node    TEXT    NOT NULL,
    epoch   TEXT    NOT NULL,
    stored  INTEGER NOT NULL, -- number of the last window
    began   INTEGER NOT NULL, -- the first stored window
    until   INTEGER NOT NULL, -- the end of the last
    stopped INTEGER NOT NULL, -- it said that it was its last
    PRIMARY KEY (node, epoch)
) STRICT;
CREATE INDEX sources_by_life ON sources (node, began, epoch);
CREATE INDEX sources_that_may_have_left ON sources (until) WHERE NOT stopped;

-- The windows that a source's numbers skip.
CREATE TABLE missing (
    node    TEXT    NOT NULL,
    epoch   TEXT    NOT NULL,
    since   INTEGER NOT NULL,
    until   INTEGER NOT NULL,
    windows INTEGER NOT NULL
) STRICT;
CREATE INDEX missing_by_time ON missing (until);

-- The running totals of the window that a node has open.
CREATE TABLE open_windows (
    node   TEXT    NOT NULL PRIMARY KEY,
    epoch  TEXT    NOT NULL,
    number INTEGER NOT NULL,
    start  INTEGER NOT NULL,
    until  INTEGER NOT NULL,
    totals BLOB    NOT NULL
) STRICT;

-- The requests of a rule version in a step of so many seconds, by cell; NULL is none.
CREATE TABLE tallies (
    uid                        TEXT    NOT NULL, -- of the rule
    step                       INTEGER NOT NULL,
    start                      INTEGER NOT NULL,
    version                    INTEGER NOT NULL,
    allowed                    INTEGER,
    refused                    INTEGER,
    refused_1                  INTEGER,
    refused_2                  INTEGER,
    refused_3                  INTEGER,
    refused_4                  INTEGER,
    refused_by_other           INTEGER,
    failed_open                INTEGER,
    failed_closed              INTEGER,
    local_allowed              INTEGER,
    local_refused              INTEGER,
    would_allow_none           INTEGER,
    would_allow_none_other     INTEGER,
    would_allow_allowed        INTEGER,
    would_allow_allowed_other  INTEGER,
    would_allow_refused        INTEGER,
    would_allow_refused_other  INTEGER,
    would_refuse_none          INTEGER,
    would_refuse_none_other    INTEGER,
    would_refuse_allowed       INTEGER,
    would_refuse_allowed_other INTEGER,
    would_refuse_refused       INTEGER,
    would_refuse_refused_other INTEGER,
    unknown_none               INTEGER,
    unknown_none_other         INTEGER,
    unknown_allowed            INTEGER,
    unknown_allowed_other      INTEGER,
    unknown_refused            INTEGER,
    unknown_refused_other      INTEGER,
    PRIMARY KEY (uid, step, start, version)
) STRICT;
CREATE INDEX tallies_by_time ON tallies (step, start);

-- The requests of a domain.
CREATE TABLE domain_tallies (
    domain       TEXT    NOT NULL,
    step         INTEGER NOT NULL,
    start        INTEGER NOT NULL,
    allowed      INTEGER,
    refused      INTEGER,
    exempt       INTEGER,
    unmatched    INTEGER,
    malformed    INTEGER,
    would_refuse INTEGER, -- part of allowed
    PRIMARY KEY (domain, step, start)
) STRICT;
CREATE INDEX domain_tallies_by_time ON domain_tallies (step, start);

-- The keys that a version went against, in minutes and hours.
CREATE TABLE tally_keys (
    uid     TEXT    NOT NULL,
    step    INTEGER NOT NULL,
    start   INTEGER NOT NULL,
    version INTEGER NOT NULL,
    keys    BLOB    NOT NULL, -- those with the most
    sketch  BLOB    NOT NULL, -- how many there are
    PRIMARY KEY (uid, step, start, version)
) STRICT;
CREATE INDEX tally_keys_by_time ON tally_keys (step, start);

-- How often keys called in a minute, of a sample of them.
CREATE TABLE tally_rates (
    uid     TEXT    NOT NULL,
    start   INTEGER NOT NULL,
    version INTEGER NOT NULL,
    rates   BLOB    NOT NULL,
    PRIMARY KEY (uid, start, version)
) STRICT;
CREATE INDEX tally_rates_by_time ON tally_rates (start);

-- The last refusals of each rule: a ring, in which the next one takes the slot of the oldest.
CREATE TABLE refusal_rings (
    uid  TEXT    NOT NULL PRIMARY KEY,
    next INTEGER NOT NULL -- how many there have been
) STRICT;
CREATE TABLE refusals (
    uid        TEXT    NOT NULL,
    slot       INTEGER NOT NULL,
    at         INTEGER NOT NULL,
    node       TEXT    NOT NULL,
    domain     TEXT    NOT NULL,
    version    INTEGER NOT NULL,
    limit_name TEXT    NOT NULL,
    outcome    INTEGER NOT NULL,
    key        BLOB    NOT NULL, -- a keyed hash
    label      TEXT    NOT NULL, -- masked
    path       TEXT    NOT NULL,
    reference  TEXT    NOT NULL,
    PRIMARY KEY (uid, slot)
) STRICT;
CREATE INDEX refusals_by_rule ON refusals (uid, at);
CREATE INDEX refusals_by_key ON refusals (key, at);
CREATE INDEX refusals_by_reference ON refusals (reference) WHERE reference <> '';
CREATE INDEX refusals_by_time ON refusals (at);

-- What is immutable stays so, unless somebody drops the triggers on purpose.
-- +goose StatementBegin
CREATE TRIGGER versions_update BEFORE UPDATE ON versions BEGIN SELECT RAISE(ABORT, 'versions is append-only: UPDATE is refused'); END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER versions_delete BEFORE DELETE ON versions BEGIN SELECT RAISE(ABORT, 'versions is append-only: DELETE is refused'); END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER rule_states_update BEFORE UPDATE ON rule_states BEGIN SELECT RAISE(ABORT, 'rule_states is append-only: UPDATE is refused'); END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER rule_states_delete BEFORE DELETE ON rule_states BEGIN SELECT RAISE(ABORT, 'rule_states is append-only: DELETE is refused'); END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER domain_states_update BEFORE UPDATE ON domain_states BEGIN SELECT RAISE(ABORT, 'domain_states is append-only: UPDATE is refused'); END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER domain_states_delete BEFORE DELETE ON domain_states BEGIN SELECT RAISE(ABORT, 'domain_states is append-only: DELETE is refused'); END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER audit_update BEFORE UPDATE ON audit BEGIN SELECT RAISE(ABORT, 'audit is append-only: UPDATE is refused'); END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER audit_delete BEFORE DELETE ON audit BEGIN SELECT RAISE(ABORT, 'audit is append-only: DELETE is refused'); END;
-- +goose StatementEnd

-- +goose Down

DROP TABLE refusals;
DROP TABLE refusal_rings;
DROP TABLE tally_rates;
DROP TABLE tally_keys;
DROP TABLE domain_tallies;
DROP TABLE tallies;
DROP TABLE open_windows;
DROP TABLE missing;
DROP TABLE sources;
DROP TABLE taken;
DROP TABLE nodes;
DROP TABLE alert_deliveries;
DROP TABLE alerts;
DROP TABLE detectors;
DROP TABLE alert_rounds;
DROP TABLE silences;
DROP TABLE sessions;
DROP TABLE credentials;
DROP TABLE audit;
-- Dropping a table deletes its rows first, and rules and rule_states refer to each other, as domains and domain_states do.
PRAGMA defer_foreign_keys = ON;
DROP TABLE rule_states;
DROP TABLE versions;
DROP TABLE rules;
DROP TABLE domain_states;
DROP TABLE domains;
DROP TABLE replaced;
DROP TABLE head;
