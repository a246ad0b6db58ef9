-- +goose Up

-- Names are compared and sorted byte by byte (COLLATE "C"), whatever the language of the database.

-- The one row that every change locks: number order is commit order, without gaps. Where the audit trail ends is kept
-- here too, so that a tail that was cut off is missed.
CREATE TABLE head (
    one      boolean PRIMARY KEY DEFAULT true CHECK (one),
    revision bigint  NOT NULL,
    lineage  text    NOT NULL, -- identity of this history, born with it
    records  bigint  NOT NULL, -- how many the audit trail has
    seal     text    NOT NULL  -- of the last of them; '' when there is none
);
INSERT INTO head (revision, lineage, records, seal) VALUES (0, replace(gen_random_uuid()::text, '-', ''), 0, '');

-- The histories that this one may take the place of.
CREATE TABLE replaced (
    lineage text COLLATE "C" PRIMARY KEY
);

CREATE TABLE domains (
    name              text COLLATE "C" PRIMARY KEY,
    secret            bytea  NOT NULL CHECK (octet_length(secret) = 16),
    revision          bigint NOT NULL, -- the last one that touched the domain or one of its rules
    settings_revision bigint           -- the last one that touched its settings; NULL: none did
);

-- Immutable: what each revision made of the settings it touched.
CREATE TABLE domain_states (
    domain   text COLLATE "C" NOT NULL REFERENCES domains (name),
    revision bigint NOT NULL,
    action   text   NOT NULL,
    settings text   NOT NULL, -- JSON
    PRIMARY KEY (domain, revision)
);

-- A domain and its newest settings need each other, so this is checked at the end of the transaction.
ALTER TABLE domains ADD CONSTRAINT domains_state FOREIGN KEY (name, settings_revision)
    REFERENCES domain_states (domain, revision) DEFERRABLE INITIALLY DEFERRED;

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

-- Immutable: what each revision made of each rule it touched. One with neither stable nor candidate was deleted.
CREATE TABLE rule_states (
    uid       text COLLATE "C" NOT NULL REFERENCES rules (uid),
    revision  bigint  NOT NULL,
    action    text    NOT NULL,
    stable    bigint,
    candidate bigint,
    percent   integer NOT NULL CHECK (percent BETWEEN 0 AND 10000),
    salt      bigint  NOT NULL, -- an unsigned number's bits
    epoch     bigint  NOT NULL,
    paused    boolean NOT NULL,
    overrides text    NOT NULL, -- JSON
    plan      text    NOT NULL, -- JSON; '': none
    PRIMARY KEY (uid, revision),
    FOREIGN KEY (uid, stable) REFERENCES versions (uid, number),
    FOREIGN KEY (uid, candidate) REFERENCES versions (uid, number)
);

-- A rule and its first state need each other, as above.
ALTER TABLE rules ADD CONSTRAINT rules_state FOREIGN KEY (uid, revision)
    REFERENCES rule_states (uid, revision) DEFERRABLE INITIALLY DEFERRED;

-- Immutable. Numbered by itself, because not every record has a revision.
CREATE TABLE audit (
    number   bigint PRIMARY KEY CHECK (number > 0), -- 1, 2, … without gaps
    revision bigint UNIQUE,      -- NULL: none was made
    refused  text   NOT NULL,    -- why
    domain   text COLLATE "C" NOT NULL,
    at       timestamptz NOT NULL,
    actor    text    NOT NULL,
    verified boolean NOT NULL,
    action   text    NOT NULL,
    target   text COLLATE "C" NOT NULL,
    message  text    NOT NULL,
    detail   text    NOT NULL,
    before   text    NOT NULL, -- JSON, its bytes kept
    after    text    NOT NULL,
    seal     text    NOT NULL, -- over the record and the seal before it
    key      text    UNIQUE    -- of what may be reported twice, and is kept once
);
CREATE INDEX audit_by_domain ON audit (domain, number);
CREATE INDEX audit_by_target ON audit (target, number);

CREATE TABLE credentials (
    id      text COLLATE "C" PRIMARY KEY,
    kind    text NOT NULL,
    hash    text NOT NULL UNIQUE,
    name    text NOT NULL,
    role    text NOT NULL,
    domains text NOT NULL, -- JSON; null: all
    created timestamptz NOT NULL,
    expires timestamptz,   -- NULL: never
    revoked timestamptz    -- NULL: it is not
);

-- Browsers in which a credential has signed in.
CREATE TABLE sessions (
    hash       text COLLATE "C" PRIMARY KEY,
    credential text COLLATE "C" NOT NULL REFERENCES credentials (id),
    created    timestamptz NOT NULL,
    expires    timestamptz NOT NULL
);
CREATE INDEX sessions_by_credential ON sessions (credential, created);
CREATE INDEX sessions_by_end ON sessions (expires);

-- Rules of which no alert is sent until a time.
CREATE TABLE silences (
    domain   text COLLATE "C" NOT NULL,
    rule     text COLLATE "C" NOT NULL,
    at       timestamptz NOT NULL,
    until    timestamptz NOT NULL,
    actor    text        NOT NULL,
    verified boolean     NOT NULL,
    message  text        NOT NULL,
    PRIMARY KEY (domain, rule)
);

-- The one row that says when all rules were last looked at. A leader that knows another time has been replaced.
CREATE TABLE alert_rounds (
    one     integer     PRIMARY KEY DEFAULT 1 CHECK (one = 1),
    at      timestamptz NOT NULL,
    settled timestamptz NOT NULL -- up to then what was counted is part of what is usual
);
INSERT INTO alert_rounds (at, settled) VALUES ('0001-01-01 00:00:00Z', '0001-01-01 00:00:00Z');

-- What watches each version of a rule.
CREATE TABLE detectors (
    uid     text COLLATE "C" NOT NULL,
    version bigint NOT NULL,
    state   text   NOT NULL, -- JSON
    PRIMARY KEY (uid, version)
);

CREATE TABLE alerts (
    id       text COLLATE "C" PRIMARY KEY,
    domain   text COLLATE "C" NOT NULL,
    since    timestamptz NOT NULL,
    resolved timestamptz,         -- NULL: it fires
    facts    text        NOT NULL -- JSON
);
CREATE INDEX alerts_by_end ON alerts (resolved);

-- What the receivers of alerts have been told.
CREATE TABLE alert_deliveries (
    alert  text COLLATE "C" NOT NULL REFERENCES alerts (id) ON DELETE CASCADE,
    target text COLLATE "C" NOT NULL,
    status text COLLATE "C" NOT NULL,
    PRIMARY KEY (alert, target, status)
);

CREATE TABLE nodes (
    id          text COLLATE "C" NOT NULL,
    domain      text COLLATE "C" NOT NULL,
    program     text        NOT NULL,
    identity    text        NOT NULL, -- who opened its stream
    level       bigint      NOT NULL,
    connected   boolean     NOT NULL,
    departed    boolean     NOT NULL,
    stream      bigint      NOT NULL,
    seen        timestamptz NOT NULL,
    lineage     text        NOT NULL,
    sent        bigint      NOT NULL,
    acked       bigint      NOT NULL,
    nacked      bigint      NOT NULL,
    nack_reason text        NOT NULL,
    refused     text        NOT NULL, -- JSON
    break_glass text        NOT NULL, -- JSON
    PRIMARY KEY (id, domain)
);

-- The newest revision that some node of a feature level has in force, of a rule or ('') of the whole domain.
CREATE TABLE taken (
    domain   text COLLATE "C" NOT NULL,
    rule     text COLLATE "C" NOT NULL,
    level    bigint NOT NULL,
    revision bigint NOT NULL,
    PRIMARY KEY (domain, rule, level)
);

-- What the nodes counted. Unlike the history it is removed when its time has come.

-- One life of a node, and how far its windows are stored: the row that makes each of them count once.
CREATE TABLE sources (
    node    text COLLATE "C" NOT NULL,
    epoch   text COLLATE "C" NOT NULL,
    stored  bigint      NOT NULL, -- number of the last window
    began   timestamptz NOT NULL, -- the first stored window
    until   timestamptz NOT NULL, -- the end of the last
    stopped boolean     NOT NULL, -- it said that it was its last
    PRIMARY KEY (node, epoch)
);
CREATE INDEX sources_by_life ON sources (node, began, epoch);
CREATE INDEX sources_that_may_have_left ON sources (until) WHERE NOT stopped;

-- The windows that a source's numbers skip.
CREATE TABLE missing (
    node    text COLLATE "C" NOT NULL,
    epoch   text COLLATE "C" NOT NULL,
    since   timestamptz NOT NULL,
    until   timestamptz NOT NULL,
    windows bigint      NOT NULL
);
CREATE INDEX missing_by_time ON missing (until);

-- The running totals of the window that a node has open.
CREATE TABLE open_windows (
    node   text COLLATE "C" PRIMARY KEY,
    epoch  text COLLATE "C" NOT NULL,
    number bigint      NOT NULL,
    start  timestamptz NOT NULL,
    until  timestamptz NOT NULL,
    totals bytea       NOT NULL
);

-- The requests of a rule version in a step of so many seconds, by cell; NULL is none, and takes no room. A row is added to
-- for as long as its step lasts, within its page where that has room.
CREATE TABLE tallies (
    uid     text COLLATE "C" NOT NULL, -- of the rule
    step    integer     NOT NULL,
    start   timestamptz NOT NULL,
    version bigint      NOT NULL,
    allowed                    bigint,
    refused                    bigint,
    refused_1                  bigint,
    refused_2                  bigint,
    refused_3                  bigint,
    refused_4                  bigint,
    refused_by_other           bigint,
    failed_open                bigint,
    failed_closed              bigint,
    local_allowed              bigint,
    local_refused              bigint,
    would_allow_none           bigint,
    would_allow_none_other     bigint,
    would_allow_allowed        bigint,
    would_allow_allowed_other  bigint,
    would_allow_refused        bigint,
    would_allow_refused_other  bigint,
    would_refuse_none          bigint,
    would_refuse_none_other    bigint,
    would_refuse_allowed       bigint,
    would_refuse_allowed_other bigint,
    would_refuse_refused       bigint,
    would_refuse_refused_other bigint,
    unknown_none               bigint,
    unknown_none_other         bigint,
    unknown_allowed            bigint,
    unknown_allowed_other      bigint,
    unknown_refused            bigint,
    unknown_refused_other      bigint,
    PRIMARY KEY (uid, step, start, version)
) WITH (fillfactor = 75);
CREATE INDEX tallies_by_time ON tallies (step, start);

-- The requests of a domain.
CREATE TABLE domain_tallies (
    domain text COLLATE "C" NOT NULL,
    step   integer     NOT NULL,
    start  timestamptz NOT NULL,
    allowed      bigint,
    refused      bigint,
    exempt       bigint,
    unmatched    bigint,
    malformed    bigint,
    would_refuse bigint, -- part of allowed
    PRIMARY KEY (domain, step, start)
) WITH (fillfactor = 75);
CREATE INDEX domain_tallies_by_time ON domain_tallies (step, start);

-- The keys that a version went against, in minutes and hours.
CREATE TABLE tally_keys (
    uid     text COLLATE "C" NOT NULL,
    step    integer     NOT NULL,
    start   timestamptz NOT NULL,
    version bigint      NOT NULL,
    keys    bytea       NOT NULL, -- those with the most
    sketch  bytea       NOT NULL, -- how many there are
    PRIMARY KEY (uid, step, start, version)
);
CREATE INDEX tally_keys_by_time ON tally_keys (step, start);

-- How often keys called in a minute, of a sample of them.
CREATE TABLE tally_rates (
    uid     text COLLATE "C" NOT NULL,
    start   timestamptz NOT NULL,
    version bigint      NOT NULL,
    rates   bytea       NOT NULL,
    PRIMARY KEY (uid, start, version)
);
CREATE INDEX tally_rates_by_time ON tally_rates (start);

-- The last refusals of each rule: a ring, in which the next one takes the slot of the oldest.
CREATE TABLE refusal_rings (
    uid  text COLLATE "C" PRIMARY KEY,
    next bigint NOT NULL -- how many there have been
) WITH (fillfactor = 75);
CREATE TABLE refusals (
    uid        text COLLATE "C" NOT NULL,
    slot       bigint      NOT NULL,
    at         timestamptz NOT NULL,
    node       text        NOT NULL,
    domain     text COLLATE "C" NOT NULL,
    version    bigint      NOT NULL,
    limit_name text        NOT NULL,
    outcome    integer     NOT NULL,
    key        bytea       NOT NULL, -- a keyed hash
    label      text        NOT NULL, -- masked
    path       text        NOT NULL,
    reference  text COLLATE "C" NOT NULL,
    PRIMARY KEY (uid, slot)
);
CREATE INDEX refusals_by_rule ON refusals (uid, at);
CREATE INDEX refusals_by_key ON refusals (key, at);
CREATE INDEX refusals_by_reference ON refusals (reference) WHERE reference <> '';
CREATE INDEX refusals_by_time ON refusals (at);

-- What is immutable stays so for everybody, superusers too, unless they disable the triggers on purpose.
-- +goose StatementBegin
CREATE FUNCTION refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '% is append-only: % is refused', TG_TABLE_NAME, TG_OP USING ERRCODE = 'insufficient_privilege';
END
$$;
-- +goose StatementEnd
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON versions      FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON rule_states   FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON domain_states FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON audit         FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();

-- And by privileges, where the program owns its tables. To check a reference, the server locks the row it leads to, as
-- the owner and as if to update it: that takes the privilege for one column. The trigger guards that one.
REVOKE UPDATE, DELETE, TRUNCATE ON versions, rule_states, domain_states, audit FROM CURRENT_USER;
GRANT UPDATE (uid) ON versions, rule_states TO CURRENT_USER;
GRANT UPDATE (domain) ON domain_states TO CURRENT_USER;

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
ALTER TABLE rules DROP CONSTRAINT rules_state;
DROP TABLE rule_states;
DROP TABLE versions;
DROP TABLE rules;
ALTER TABLE domains DROP CONSTRAINT domains_state;
DROP TABLE domain_states;
DROP TABLE domains;
DROP TABLE replaced;
DROP TABLE head;
DROP FUNCTION refuse_change();
