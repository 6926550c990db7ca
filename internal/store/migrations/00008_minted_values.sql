-- +goose Up
-- Values that were minted for leases, until they are over or were revoked at who
-- made them. A row is there before its value is asked for; until_at is NULL until
-- the value came. No key to leases: a value outlives the rows of its task.
CREATE TABLE minted_values (
    id         TEXT   NOT NULL PRIMARY KEY,
    lease      TEXT   NOT NULL,
    count      BIGINT NOT NULL,
    task       TEXT   NOT NULL,
    credential TEXT   NOT NULL,
    record     TEXT   NOT NULL,
    sealed     TEXT   NOT NULL,
    begun_at   BIGINT NOT NULL,
    kept_at    BIGINT,
    until_at   BIGINT
);
CREATE INDEX minted_values_by_lease ON minted_values (lease);

-- +goose Down
DROP TABLE minted_values;
