package store

import (
	"context"
	"database/sql"
	"errors"

	"github.com/uptrace/bun"

	"github.com/cofferdam/cofferdam/internal/store/table"
	"github.com/cofferdam/cofferdam/internal/task"
)

// projectRow is a row of projects.
type projectRow struct {
	bun.BaseModel `bun:"table:projects"`

	Name   string `bun:"name,pk"`
	Text   string `bun:"text"`
	Digest string `bun:"digest"`
	SetBy  string `bun:"set_by"`
	SetAt  int64  `bun:"set_at"`
}

func (r projectRow) project() task.Project {
	return task.Project{Name: r.Name, Text: r.Text, Digest: task.Digest(r.Digest), By: r.SetBy, At: table.Moment(r.SetAt)}
}

// SetProject keeps a project's policy layer in place of the one of that name.
func (s *Store) SetProject(ctx context.Context, p task.Project) error {
	if p.At.IsZero() {
		p.At = s.now()
	}
	row := projectRow{Name: p.Name, Text: p.Text, Digest: string(p.Digest), SetBy: p.By, SetAt: p.At.UnixNano()}
	_, err := s.write.NewRaw(`INSERT INTO projects (name, text, digest, set_by, set_at) VALUES (?, ?, ?, ?, ?)
		ON CONFLICT (name) DO UPDATE SET text = excluded.text, digest = excluded.digest, set_by = excluded.set_by, set_at = excluded.set_at`,
		row.Name, row.Text, row.Digest, row.SetBy, row.SetAt).Exec(ctx)
	return s.failure("set project", err)
}

// Project returns a project's policy layer.
func (s *Store) Project(ctx context.Context, name string) (task.Project, error) {
	var row projectRow
	err := s.read.NewSelect().Model(&row).Where("name = ?", name).Scan(ctx)
	if errors.Is(err, sql.ErrNoRows) {
		return task.Project{}, notFound("project", name)
	}
	return row.project(), s.failure("read project", err)
}

// Projects lists the projects' policy layers by name.
func (s *Store) Projects(ctx context.Context) ([]task.Project, error) {
	var rows []projectRow
	if err := s.read.NewSelect().Model(&rows).OrderExpr("name").Scan(ctx); err != nil {
		return nil, s.failure("list projects", err)
	}
	out := make([]task.Project, 0, len(rows))
	for _, r := range rows {
		out = append(out, r.project())
	}
	return out, nil
}

// RemoveProject forgets a project's policy layer. Tasks that were admitted
// beneath it keep their copy.
func (s *Store) RemoveProject(ctx context.Context, name string) error {
	res, err := s.write.NewDelete().Model((*projectRow)(nil)).Where("name = ?", name).Exec(ctx)
	if err != nil {
		return s.failure("remove project", err)
	}
	if n, err := res.RowsAffected(); err != nil || n == 0 {
		if err != nil {
			return s.failure("remove project", err)
		}
		return notFound("project", name)
	}
	return nil
}
