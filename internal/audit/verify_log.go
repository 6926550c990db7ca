package audit

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
)

// maxLine bounds one line of an export.
const maxLine = 256 << 20

// VerifyOptions give what was kept outside of the export. Without it, an
// export that was cut back to an earlier whole state can't be told from one
// that was made then.
type VerifyOptions struct {
	Trusted  *Checkpoint // from ParseCheckpoint
	Receipts [][]byte    // receipts that the log must hold
}

// VerifyLog checks an export with the installation's public keys, one a line,
// which must come from elsewhere. Where the account says that the key was rotated,
// each receipt must be signed by the key that was in use then. The error says that the key can't be used or the export
// can't be read; what is wrong with the export is in the report.
func VerifyLog(vkeys string, export io.Reader, o VerifyOptions) (Report, error) {
	v, err := newKeySet(vkeys)
	if err != nil {
		return Report{}, err
	}
	c := &logCheck{verifier: v, report: Report{Origin: v.Name(), Findings: []Finding{}}, names: map[string]string{}}
	if err := c.read(export); err != nil {
		return Report{}, err
	}
	c.finish(o)
	return c.report, nil
}

// section of an export; lines come in this order.
type section int

const (
	nothing section = iota
	header
	records
	receipts
	end
)

// logCheck is the state of one verification. It keeps the links of the chain
// and a hash a receipt, never the records themselves.
type logCheck struct {
	verifier *keySet
	report   Report

	section  section
	names    map[string]string // task ids, each kept once
	chain    []link            // sorted by seq once linked is set
	linked   bool
	unread   int // record lines that can't be read
	leaves   []leaf
	unsigned int // receipt lines that can't be read or have no valid signature
	tree     tree
	final    *Checkpoint
	turns    []turn // of the signing key, in order
}

// read takes the lines one at a time. A line that can't be read is a finding,
// and the next one is read.
func (c *logCheck) read(export io.Reader) error {
	in := bufio.NewReaderSize(export, 1<<16)
	for n := 1; ; n++ {
		raw, err := readLine(in)
		if errors.Is(err, io.EOF) && len(raw) == 0 {
			return nil
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return fmt.Errorf("audit export, line %d: %w", n, err)
		}
		where := fmt.Sprintf("line %d", n)
		text, whole := bytes.CutSuffix(raw, []byte("\n"))
		if !whole {
			c.report.addf(where, TailCut, "the export ends in the middle of a line")
		}
		c.line(where, text)
	}
}

func readLine(in *bufio.Reader) ([]byte, error) {
	var whole []byte
	for {
		part, err := in.ReadSlice('\n')
		whole = append(whole, part...)
		if len(whole) > maxLine {
			return nil, errors.New("the line is too long")
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return whole, err
		}
	}
}

func (c *logCheck) line(where string, raw []byte) {
	var l line
	if err := decodeCanonical(raw, &l); err != nil {
		c.unreadable(where, err)
		return
	}
	kind, ok := l.section(c.verifier.Name())
	if !ok {
		c.unreadable(where, fmt.Errorf("it is not a %q line of this installation", l.Type))
		return
	}
	if c.section == nothing && kind != header {
		c.report.addf(where, Malformed, "the export does not begin with a header")
	}
	if kind < c.section || kind == c.section && (kind == header || kind == end) {
		c.report.addf(where, Order, "a %s line stands where none belongs", l.Type)
	}
	c.section = max(c.section, kind)
	switch kind {
	case records:
		c.record(*l.Record)
		c.turned(*l.Record)
	case receipts:
		c.link()
		c.receipt(l.Receipt)
	case end:
		c.checkpoint(where, l.Checkpoint)
	}
}

// unreadable counts a damaged line where lines like it stand, so that it is not
// reported again as a gap.
func (c *logCheck) unreadable(where string, err error) {
	c.report.addf(where, Malformed, "%v", err)
	c.unread++
	c.unsigned++
}

// section says what the line is; false when it has other members than its type.
func (l line) section(origin string) (section, bool) {
	bare := line{Type: l.Type}
	switch l.Type {
	case "header":
		bare.Format, bare.Origin = exportFormat, origin
		return header, l.Record == nil && l.Receipt == nil && l.Checkpoint == "" && l.Format == bare.Format && l.Origin == bare.Origin
	case "record":
		return records, l.Record != nil && l.Receipt == nil && l.Checkpoint == "" && l.Format == "" && l.Origin == ""
	case "receipt":
		return receipts, l.Record == nil && l.Receipt != nil && l.Checkpoint == "" && l.Format == "" && l.Origin == ""
	case "checkpoint":
		return end, l.Record == nil && l.Receipt == nil && l.Checkpoint != "" && l.Format == "" && l.Origin == ""
	}
	return nothing, false
}

func (c *logCheck) checkpoint(where, msg string) {
	check, bad := openCheckpoint(c.verifier, msg)
	if bad != nil {
		c.report.add(where+", the checkpoint", bad)
		return
	}
	if c.final != nil {
		c.report.addf(where, Order, "there is more than one checkpoint at the end")
		return
	}
	c.final, c.report.Note = &check, msg
	c.report.Checkpoint = &check
}

// finish draws the conclusions that need the whole export.
func (c *logCheck) finish(o VerifyOptions) {
	c.link()
	c.grow()
	c.keys()
	c.report.Records, c.report.Receipts = int64(len(c.chain)), int64(len(c.leaves))
	if c.section < header {
		c.report.addf("", Malformed, "it is not an audit export: it has no header")
	}
	if c.final == nil {
		if c.section != end {
			c.report.addf("", TailCut, "the export does not end with a checkpoint")
		}
	} else {
		c.against("the checkpoint at the end", *c.final, Altered)
		if last := c.lastSeq(); last > c.final.Records {
			c.report.addf(fmt.Sprintf("record %d", c.final.Records+1), Altered, "the export holds %d records, but its checkpoint was signed over %d", last, c.final.Records)
		}
		if size := c.size(); size > c.final.Size {
			c.report.addf(fmt.Sprintf("receipt %d", c.final.Size), Altered, "the export holds %d receipts, but its checkpoint was signed over %d", size, c.final.Size)
		}
	}
	for _, l := range c.leaves {
		c.against("the checkpoint in the receipt of "+l.task, l.checkpoint, Altered)
	}
	if o.Trusted != nil {
		c.trusted(*o.Trusted)
	}
	for _, raw := range o.Receipts {
		c.beside(raw)
	}
	done := map[string]bool{"": true}
	for _, l := range c.leaves {
		done[l.task] = true
	}
	for _, l := range c.chain {
		if !done[l.task] {
			done[l.task] = true
			c.report.Open = append(c.report.Open, l.task)
		}
	}
	slices.Sort(c.report.Open)
}
