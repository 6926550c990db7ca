-- +goose Up
ALTER TABLE tasks ADD COLUMN model_requests BIGINT NOT NULL DEFAULT 0;
ALTER TABLE tasks ADD COLUMN model_input BIGINT NOT NULL DEFAULT 0;
ALTER TABLE tasks ADD COLUMN model_output BIGINT NOT NULL DEFAULT 0;
ALTER TABLE tasks ADD COLUMN model_cached BIGINT NOT NULL DEFAULT 0;

CREATE TABLE agent_events (
    task TEXT NOT NULL REFERENCES tasks (id),
    key  TEXT NOT NULL,
    PRIMARY KEY (task, key)
);

CREATE TABLE turns (
    task     TEXT   NOT NULL REFERENCES tasks (id),
    attempt  BIGINT NOT NULL,
    turn     BIGINT NOT NULL,
    state    TEXT   NOT NULL,
    request  TEXT   NOT NULL,
    requests BIGINT NOT NULL,
    response TEXT   NOT NULL,
    input    BIGINT NOT NULL,
    output   BIGINT NOT NULL,
    cached   BIGINT NOT NULL,
    PRIMARY KEY (task, attempt, turn)
);

CREATE TABLE calls (
    task    TEXT   NOT NULL REFERENCES tasks (id),
    attempt BIGINT NOT NULL,
    turn    BIGINT NOT NULL,
    call    BIGINT NOT NULL,
    tool    TEXT   NOT NULL,
    input   TEXT   NOT NULL,
    command TEXT   NOT NULL,
    state   TEXT   NOT NULL,
    before  TEXT   NOT NULL,
    after   TEXT   NOT NULL,
    result  TEXT   NOT NULL,
    failed  BIGINT NOT NULL,
    PRIMARY KEY (task, attempt, turn, call)
);

-- +goose Down
DROP TABLE calls;
DROP TABLE turns;
DROP TABLE agent_events;
ALTER TABLE tasks DROP COLUMN model_cached;
ALTER TABLE tasks DROP COLUMN model_output;
ALTER TABLE tasks DROP COLUMN model_input;
ALTER TABLE tasks DROP COLUMN model_requests;
