-- +goose Up
CREATE TABLE credentials (
    id         TEXT   NOT NULL PRIMARY KEY,
    name       TEXT   NOT NULL UNIQUE,
    owner      TEXT   NOT NULL,
    kind       TEXT   NOT NULL,
    binding    TEXT   NOT NULL,
    sealed     TEXT   NOT NULL,
    created_at BIGINT NOT NULL,
    used_at    BIGINT,
    revoked_at BIGINT
);

CREATE TABLE leases (
    id            TEXT   NOT NULL PRIMARY KEY,
    task          TEXT   NOT NULL REFERENCES tasks (id),
    number        BIGINT NOT NULL,
    sandbox       TEXT   NOT NULL,
    credential_id TEXT   NOT NULL,
    lease         TEXT   NOT NULL,
    count         BIGINT NOT NULL,
    from_at       BIGINT NOT NULL,
    until_at      BIGINT,
    ended         TEXT   NOT NULL,
    UNIQUE (task, number)
);
CREATE INDEX leases_active ON leases (credential_id) WHERE until_at IS NULL;

-- +goose Down
DROP TABLE leases;
DROP TABLE credentials;
