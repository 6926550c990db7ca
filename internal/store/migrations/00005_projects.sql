-- +goose Up
CREATE TABLE projects (
    name       TEXT   NOT NULL PRIMARY KEY,
    text       TEXT   NOT NULL,
    digest     TEXT   NOT NULL,
    set_by     TEXT   NOT NULL,
    set_at     BIGINT NOT NULL
);

CREATE TABLE stage_rounds (
    task       TEXT   NOT NULL REFERENCES tasks (id),
    attempt    BIGINT NOT NULL,
    name       TEXT   NOT NULL,
    round      BIGINT NOT NULL,
    state      TEXT   NOT NULL,
    reason     TEXT   NOT NULL,
    text       TEXT   NOT NULL,
    sandbox    TEXT   NOT NULL,
    exit_code  BIGINT,
    started_at BIGINT,
    ended_at   BIGINT,
    PRIMARY KEY (task, attempt, name, round)
);
INSERT INTO stage_rounds SELECT task, attempt, name, 1, state, reason, text, sandbox, exit_code, started_at, ended_at
    FROM stages WHERE started_at IS NOT NULL;

ALTER TABLE tasks ADD COLUMN layers TEXT NOT NULL DEFAULT '';

-- +goose Down
ALTER TABLE tasks DROP COLUMN layers;
DROP TABLE stage_rounds;
DROP TABLE projects;
