-- +goose Up
CREATE TABLE tasks (
    id                  TEXT    NOT NULL PRIMARY KEY,
    number              BIGINT  NOT NULL UNIQUE,
    state               TEXT    NOT NULL,
    reason              TEXT    NOT NULL,
    text                TEXT    NOT NULL,
    requested_by        TEXT    NOT NULL,
    idempotency_key     TEXT,
    request_digest      TEXT    NOT NULL,
    repo                TEXT    NOT NULL,
    ref                 TEXT    NOT NULL,
    commit_id           TEXT    NOT NULL,
    worker              TEXT    NOT NULL,
    policy_digest       TEXT    NOT NULL,
    attempt             BIGINT  NOT NULL,
    spec                TEXT    NOT NULL,
    sandboxes           BIGINT  NOT NULL,
    egress_allowed      BIGINT  NOT NULL,
    egress_denied       BIGINT  NOT NULL,
    bytes_in            BIGINT  NOT NULL,
    bytes_out           BIGINT  NOT NULL,
    created_at          BIGINT  NOT NULL,
    started_at          BIGINT,
    ended_at            BIGINT,
    cancel_requested_at BIGINT,
    last_event          BIGINT  NOT NULL,
    UNIQUE (requested_by, idempotency_key)
);
CREATE INDEX tasks_open ON tasks (number) WHERE ended_at IS NULL;
CREATE INDEX tasks_by_owner ON tasks (requested_by, number);

CREATE TABLE stages (
    task       TEXT   NOT NULL REFERENCES tasks (id),
    attempt    BIGINT NOT NULL,
    name       TEXT   NOT NULL,
    state      TEXT   NOT NULL,
    reason     TEXT   NOT NULL,
    text       TEXT   NOT NULL,
    starts     BIGINT NOT NULL,
    sandbox    TEXT   NOT NULL,
    exit_code  BIGINT,
    started_at BIGINT,
    ended_at   BIGINT,
    PRIMARY KEY (task, attempt, name)
);

CREATE TABLE outputs (
    task   TEXT   NOT NULL REFERENCES tasks (id),
    name   TEXT   NOT NULL,
    number BIGINT NOT NULL,
    kind   TEXT   NOT NULL,
    digest TEXT   NOT NULL,
    size   BIGINT NOT NULL,
    flags  TEXT   NOT NULL,
    PRIMARY KEY (task, name)
);

CREATE TABLE events (
    task TEXT   NOT NULL REFERENCES tasks (id),
    seq  BIGINT NOT NULL,
    time BIGINT NOT NULL,
    type TEXT   NOT NULL,
    data TEXT   NOT NULL,
    PRIMARY KEY (task, seq)
);

CREATE TABLE sandboxes (
    id     TEXT   NOT NULL PRIMARY KEY,
    task   TEXT   NOT NULL REFERENCES tasks (id),
    number BIGINT NOT NULL,
    spec   TEXT   NOT NULL
);
CREATE INDEX sandboxes_by_task ON sandboxes (task, number);

CREATE TABLE egress (
    sandbox TEXT   NOT NULL,
    seq     BIGINT NOT NULL,
    task    TEXT   NOT NULL REFERENCES tasks (id),
    number  BIGINT NOT NULL,
    record  TEXT   NOT NULL,
    PRIMARY KEY (sandbox, seq)
);
CREATE INDEX egress_by_task ON egress (task, number);

CREATE TABLE owners (
    sandbox TEXT NOT NULL PRIMARY KEY,
    owner   TEXT NOT NULL,
    digest  TEXT NOT NULL
);

CREATE TABLE tokens (
    id         TEXT   NOT NULL PRIMARY KEY,
    owner      TEXT   NOT NULL,
    role       TEXT   NOT NULL,
    note       TEXT   NOT NULL,
    hash       TEXT   NOT NULL UNIQUE,
    created_at BIGINT NOT NULL,
    expires_at BIGINT
);

CREATE TABLE audit_records (
    seq       BIGINT NOT NULL PRIMARY KEY,
    task      TEXT   NOT NULL,
    task_seq  BIGINT NOT NULL,
    key       TEXT   NOT NULL,
    time      TEXT   NOT NULL,
    kind      TEXT   NOT NULL,
    seen_by   TEXT   NOT NULL,
    facts     TEXT   NOT NULL,
    prev      TEXT   NOT NULL,
    task_prev TEXT   NOT NULL,
    hash      TEXT   NOT NULL,
    UNIQUE (task, key),
    UNIQUE (task, task_seq)
);

CREATE TABLE audit_receipts (
    leaf   BIGINT NOT NULL PRIMARY KEY,
    task   TEXT   NOT NULL UNIQUE,
    bundle TEXT   NOT NULL
);

CREATE TABLE audit_hashes (
    number BIGINT NOT NULL PRIMARY KEY,
    hash   TEXT   NOT NULL
);

-- +goose Down
DROP TABLE audit_hashes;
DROP TABLE audit_receipts;
DROP TABLE audit_records;
DROP TABLE tokens;
DROP TABLE owners;
DROP TABLE egress;
DROP TABLE sandboxes;
DROP TABLE events;
DROP TABLE outputs;
DROP TABLE stages;
DROP TABLE tasks;
