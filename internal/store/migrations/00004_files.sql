-- +goose Up
CREATE TABLE file_denials (
    sandbox TEXT   NOT NULL,
    seq     BIGINT NOT NULL,
    task    TEXT   NOT NULL REFERENCES tasks (id),
    number  BIGINT NOT NULL,
    record  TEXT   NOT NULL,
    PRIMARY KEY (sandbox, seq)
);
CREATE INDEX file_denials_by_task ON file_denials (task, number);

-- +goose Down
DROP TABLE file_denials;
