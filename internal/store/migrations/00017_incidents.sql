-- +goose Up
-- Keys that were made anew. A row of the vault's key is written in the
-- transaction that seals everything under it.
CREATE TABLE key_rotations (
    name    TEXT   NOT NULL,
    key     TEXT   NOT NULL,
    made_by TEXT   NOT NULL,
    made_at BIGINT NOT NULL,
    PRIMARY KEY (name, key)
);

-- Sandboxes that are kept as evidence.
CREATE TABLE frozen_sandboxes (
    sandbox     TEXT   NOT NULL PRIMARY KEY,
    task        TEXT   NOT NULL,
    worker      TEXT   NOT NULL,
    reason      TEXT   NOT NULL,
    frozen_by   TEXT   NOT NULL,
    frozen_at   BIGINT NOT NULL,
    released_at BIGINT
);

-- +goose Down
DROP TABLE frozen_sandboxes;
DROP TABLE key_rotations;
