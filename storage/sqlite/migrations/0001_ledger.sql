-- +goose Up

-- SQLite compares and sorts text byte by byte unless told otherwise. Times are microseconds since 1970 in UTC, and
-- booleans are 0 and 1: it has a type for neither.

-- The one row that carries the number of the last revision.
CREATE TABLE head (
    one      INTEGER PRIMARY KEY DEFAULT 1 CHECK (one = 1),
    revision INTEGER NOT NULL,
    lineage  TEXT    NOT NULL -- identity of this history, born with it
) STRICT;
INSERT INTO head (revision, lineage) VALUES (0, lower(hex(randomblob(16))));

CREATE TABLE domains (
    name     TEXT    NOT NULL PRIMARY KEY,
    secret   BLOB    NOT NULL CHECK (length(secret) = 16),
    revision INTEGER NOT NULL -- the last one that touched the domain or one of its rules
) STRICT;

-- A rule's identity, and which of its states is the newest. The last reference is checked at the end of the
-- transaction, because a rule and its first state need each other.
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

-- Immutable: what each revision made of each rule it touched.
CREATE TABLE rule_states (
    uid       TEXT    NOT NULL REFERENCES rules (uid),
    revision  INTEGER NOT NULL,
    action    TEXT    NOT NULL,
    stable    INTEGER,
    candidate INTEGER,
    percent   INTEGER NOT NULL CHECK (percent BETWEEN 0 AND 10000),
    salt      INTEGER NOT NULL, -- an unsigned number's bits
    epoch     INTEGER NOT NULL,
    PRIMARY KEY (uid, revision),
    FOREIGN KEY (uid, stable) REFERENCES versions (uid, number),
    FOREIGN KEY (uid, candidate) REFERENCES versions (uid, number)
) STRICT;

-- Immutable. Numbered by itself, because not every record needs to have a revision.
CREATE TABLE audit (
    number   INTEGER PRIMARY KEY, -- 1, 2, … without gaps
    revision INTEGER UNIQUE,      -- NULL: the attempt was refused
    refused  TEXT    NOT NULL,    -- why
    domain   TEXT    NOT NULL,
    at       INTEGER NOT NULL,
    actor    TEXT    NOT NULL,
    verified INTEGER NOT NULL,
    action   TEXT    NOT NULL,
    target   TEXT    NOT NULL,
    message  TEXT    NOT NULL,
    detail   TEXT    NOT NULL,
    before   TEXT    NOT NULL, -- JSON
    after    TEXT    NOT NULL
) STRICT;
CREATE INDEX audit_by_domain ON audit (domain, number);

CREATE TABLE nodes (
    id          TEXT    NOT NULL,
    domain      TEXT    NOT NULL,
    program     TEXT    NOT NULL,
    connected   INTEGER NOT NULL,
    departed    INTEGER NOT NULL,
    seen        INTEGER NOT NULL,
    sent        INTEGER NOT NULL,
    acked       INTEGER NOT NULL,
    nacked      INTEGER NOT NULL,
    nack_reason TEXT    NOT NULL,
    PRIMARY KEY (id, domain)
) STRICT;

-- +goose Down

DROP TABLE nodes;
DROP TABLE audit;
-- Dropping a table deletes its rows first, and rules and rule_states refer to each other.
PRAGMA defer_foreign_keys = ON;
DROP TABLE rule_states;
DROP TABLE versions;
DROP TABLE rules;
DROP TABLE domains;
DROP TABLE head;
