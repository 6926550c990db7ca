-- +goose Up
-- What requests to models used, summed by task, day (UTC) and model.
CREATE TABLE model_spend (
    task        TEXT   NOT NULL,
    day         TEXT   NOT NULL, -- 2006-01-02
    model       TEXT   NOT NULL,
    requester   TEXT   NOT NULL,
    project     TEXT   NOT NULL,
    requests    BIGINT NOT NULL,
    estimates   BIGINT NOT NULL,
    input       BIGINT NOT NULL,
    output      BIGINT NOT NULL,
    cache_read  BIGINT NOT NULL,
    cache_write BIGINT NOT NULL,
    PRIMARY KEY (task, day, model)
);
CREATE INDEX model_spend_by_requester ON model_spend (requester, day);
CREATE INDEX model_spend_by_project ON model_spend (project, day);

-- What a task, a user or a project may use.
CREATE TABLE budgets (
    scope     TEXT   NOT NULL,
    name      TEXT   NOT NULL,
    tokens    BIGINT NOT NULL,
    micro_usd BIGINT NOT NULL,
    per       TEXT   NOT NULL,
    set_by    TEXT   NOT NULL,
    set_at    BIGINT NOT NULL,
    PRIMARY KEY (scope, name)
);

-- When tasks waited for a budget to be raised.
CREATE TABLE budget_waits (
    task     TEXT   NOT NULL REFERENCES tasks (id),
    number   BIGINT NOT NULL,
    sandbox  TEXT   NOT NULL,
    text     TEXT   NOT NULL,
    since_at BIGINT NOT NULL,
    until_at BIGINT NOT NULL,
    ended_at BIGINT,
    raised   BIGINT NOT NULL,
    told     BIGINT NOT NULL,
    PRIMARY KEY (task, number)
);
CREATE INDEX budget_waits_open ON budget_waits (task) WHERE ended_at IS NULL OR told < 2;

-- +goose Down
DROP TABLE budget_waits;
DROP TABLE budgets;
DROP TABLE model_spend;
