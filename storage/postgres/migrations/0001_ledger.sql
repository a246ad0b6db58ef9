-- +goose Up

-- Names are compared and sorted byte by byte (COLLATE "C"), whatever the language of the database.

-- The one row that every change locks: number order is commit order, without gaps.
CREATE TABLE head (
    one      boolean PRIMARY KEY DEFAULT true CHECK (one),
    revision bigint  NOT NULL,
    lineage  text    NOT NULL -- identity of this history, born with it
);
INSERT INTO head (revision, lineage) VALUES (0, replace(gen_random_uuid()::text, '-', ''));

CREATE TABLE domains (
    name     text COLLATE "C" PRIMARY KEY,
    secret   bytea  NOT NULL CHECK (octet_length(secret) = 16),
    revision bigint NOT NULL -- the last one that touched the domain or one of its rules
);

-- A rule's identity, and which of its states is the newest.
CREATE TABLE rules (
    uid      text COLLATE "C" PRIMARY KEY,
    domain   text COLLATE "C" NOT NULL REFERENCES domains (name),
    name     text COLLATE "C" NOT NULL,
    revision bigint NOT NULL
);
CREATE UNIQUE INDEX rules_by_name ON rules (domain, name);
CREATE INDEX rules_by_revision ON rules (revision);

-- Immutable. The spec is text rather than jsonb, which would not keep its bytes.
CREATE TABLE versions (
    uid      text COLLATE "C" NOT NULL REFERENCES rules (uid),
    number   bigint NOT NULL CHECK (number > 0),
    spec     text   NOT NULL,
    revision bigint NOT NULL, -- the one that brought it
    PRIMARY KEY (uid, number)
);

-- Immutable: what each revision made of each rule it touched.
CREATE TABLE rule_states (
    uid       text COLLATE "C" NOT NULL REFERENCES rules (uid),
    revision  bigint  NOT NULL,
    action    text    NOT NULL,
    stable    bigint,
    candidate bigint,
    percent   integer NOT NULL CHECK (percent BETWEEN 0 AND 10000),
    salt      bigint  NOT NULL, -- an unsigned number's bits
    epoch     bigint  NOT NULL,
    PRIMARY KEY (uid, revision),
    FOREIGN KEY (uid, stable) REFERENCES versions (uid, number),
    FOREIGN KEY (uid, candidate) REFERENCES versions (uid, number)
);

-- A rule and its first state need each other, so this is checked at the end of the transaction.
ALTER TABLE rules ADD CONSTRAINT rules_state FOREIGN KEY (uid, revision)
    REFERENCES rule_states (uid, revision) DEFERRABLE INITIALLY DEFERRED;

-- Immutable. Numbered by itself, because not every record needs to have a revision.
CREATE TABLE audit (
    number   bigint PRIMARY KEY, -- 1, 2, … without gaps
    revision bigint UNIQUE,        -- NULL: the attempt was refused
    refused  text   NOT NULL,      -- why
    domain   text COLLATE "C" NOT NULL,
    at       timestamptz NOT NULL,
    actor    text    NOT NULL,
    verified boolean NOT NULL,
    action   text    NOT NULL,
    target   text    NOT NULL,
    message  text    NOT NULL,
    detail   text    NOT NULL,
    before   text    NOT NULL, -- JSON, its bytes kept
    after    text    NOT NULL
);
CREATE INDEX audit_by_domain ON audit (domain, number);

CREATE TABLE nodes (
    id          text COLLATE "C" NOT NULL,
    domain      text COLLATE "C" NOT NULL,
    program     text        NOT NULL,
    connected   boolean     NOT NULL,
    departed    boolean     NOT NULL,
    seen        timestamptz NOT NULL,
    sent        bigint      NOT NULL,
    acked       bigint      NOT NULL,
    nacked      bigint      NOT NULL,
    nack_reason text        NOT NULL,
    PRIMARY KEY (id, domain)
);

-- +goose Down

DROP TABLE nodes;
DROP TABLE audit;
ALTER TABLE rules DROP CONSTRAINT rules_state;
DROP TABLE rule_states;
DROP TABLE versions;
DROP TABLE rules;
DROP TABLE domains;
DROP TABLE head;
