-- +goose Up
CREATE TABLE approvals (
    id         TEXT   NOT NULL PRIMARY KEY,
    task       TEXT   NOT NULL REFERENCES tasks (id),
    number     BIGINT NOT NULL,
    key        TEXT   NOT NULL,
    requester  TEXT   NOT NULL,
    sandbox    TEXT   NOT NULL,
    digest     TEXT   NOT NULL,
    question   TEXT   NOT NULL,
    count      BIGINT NOT NULL,
    asked_at   BIGINT NOT NULL,
    expires_at BIGINT NOT NULL,
    state      TEXT   NOT NULL,
    scope      TEXT   NOT NULL,
    decision   TEXT   NOT NULL,
    decided_by TEXT   NOT NULL,
    decided_at BIGINT,
    used_by    TEXT   NOT NULL,
    told       BIGINT NOT NULL,
    UNIQUE (task, number)
);
CREATE INDEX approvals_by_key ON approvals (task, key, number);
CREATE INDEX approvals_waiting ON approvals (expires_at) WHERE state = 'waiting';
CREATE INDEX approvals_untold ON approvals (id) WHERE told = 0;

CREATE TABLE decisions (
    id           TEXT   NOT NULL PRIMARY KEY,
    number       BIGINT NOT NULL UNIQUE,
    scope        TEXT   NOT NULL,
    decided_in   TEXT   NOT NULL, -- the task
    project      TEXT   NOT NULL,
    standing     TEXT   NOT NULL,
    until_at     BIGINT,
    withdrawn_at BIGINT,
    withdrawn_by TEXT   NOT NULL,
    told         BIGINT NOT NULL
);
CREATE INDEX decisions_by_task ON decisions (decided_in) WHERE withdrawn_at IS NULL;
CREATE INDEX decisions_by_project ON decisions (project) WHERE withdrawn_at IS NULL;

-- Where a decision was given out, so that it can be taken back there.
CREATE TABLE decision_uses (
    decision TEXT NOT NULL REFERENCES decisions (id),
    sandbox  TEXT NOT NULL,
    PRIMARY KEY (decision, sandbox)
);

-- +goose Down
DROP TABLE decision_uses;
DROP TABLE decisions;
DROP TABLE approvals;
