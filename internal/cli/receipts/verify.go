// Package receipts has the command that checks receipts and exports of the whole
// account without a server: nothing is believed but the key that is given.
package receipts

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cofferdam/cofferdam/api"
	"github.com/cofferdam/cofferdam/internal/audit"
	"github.com/cofferdam/cofferdam/internal/cli/host"
	"github.com/cofferdam/cofferdam/internal/cli/show"
)

// maxReceipt bounds a receipt that is read.
const maxReceipt = 256 << 20

type options struct {
	keys            []string
	log, checkpoint string
	receipts        []string
	show            bool
}

// Host is what the command is part of.
type Host struct {
	host.Host
}

// Verify returns the command.
func Verify(h Host) *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use: "verify --key KEY|FILE [RECEIPT...]", Short: "Check receipts and exports, without a server", Args: cobra.ArbitraryArgs,
		Long: `Check receipts, and an export of the whole account, without a server. The key must come
from outside: one that was kept since the installation was made ("audit key"). After a
rotation of the key ("key rotate audit") give each key that was kept: what was signed
before needs the old one, what was signed after it the new one. With --log, each receipt
must be signed by the key that was in use when it was made, so that a key which was
rotated signs nothing more. With --log, each receipt must also be in the export. With --checkpoint, an export that was cut
back to an earlier state or rewritten shows; a checkpoint is in every receipt and at the
end of every export, and is printed when all is well.

Ends with 0 when everything holds, and with 1 otherwise, naming each finding.`,
		Example: `  cofferdam audit verify --key audit.pub --show receipt.json
  cofferdam audit verify --key audit.pub --log export.jsonl --checkpoint kept.txt receipt.json`,
		RunE: func(_ *cobra.Command, args []string) error {
			o.receipts = args
			return h.verify(o)
		},
	}
	cmd.Flags().StringArrayVar(&o.keys, "key", nil, "a public key, or a file that holds one a line; may be repeated")
	cmd.Flags().StringVar(&o.log, "log", "", "an export to check as well")
	cmd.Flags().StringVar(&o.checkpoint, "checkpoint", "", "a signed checkpoint that was kept")
	cmd.Flags().BoolVar(&o.show, "show", false, "print what each receipt says was reachable, reached, lent, asked and handed over")
	return cmd
}

// verified is the outcome for one file.
type verified struct {
	File string `json:"file"`
	OK   bool   `json:"ok"`
	audit.Report
}

func (h Host) verify(o options) error {
	key, err := Keys(o.keys)
	if err != nil {
		return err
	}
	if len(o.receipts) == 0 && o.log == "" {
		return host.Invalid("nothing to verify; give a receipt, or an export with --log")
	}
	known := audit.VerifyOptions{}
	if o.checkpoint != "" {
		if o.log == "" {
			return host.Invalid("--checkpoint is compared with an export; give it with --log")
		}
		text, err := readBounded(o.checkpoint, h.In)
		if err != nil {
			return err
		}
		trusted, err := audit.ParseCheckpoint(key, text)
		if err != nil {
			return host.Invalid("--checkpoint %s: %v", o.checkpoint, err)
		}
		known.Trusted = &trusted
	}
	var all []verified
	for _, file := range o.receipts {
		bundle, err := readBounded(file, h.In)
		if err != nil {
			return err
		}
		report, err := audit.VerifyReceipt(key, bundle)
		if err != nil {
			return host.Invalid("--key: %v", err)
		}
		known.Receipts = append(known.Receipts, bundle)
		all = append(all, verified{file, report.OK(), report})
	}
	if o.log != "" {
		f, err := os.Open(o.log)
		if err != nil {
			return host.Invalid("--log: %v", err)
		}
		defer f.Close()
		report, err := audit.VerifyLog(key, f, known)
		if err != nil {
			return host.Invalid("--log %s: %v", o.log, err)
		}
		all = append(all, verified{o.log, report.OK(), report})
	}
	return h.tell(all, o.show)
}

// Keys reads public keys, each itself or a file of them, and gives them one a line.
func Keys(all []string) (string, error) {
	if len(all) == 0 {
		all = []string{""}
	}
	keys := make([]string, 0, len(all))
	for _, one := range all {
		key, err := readKey(one)
		if err != nil {
			return "", err
		}
		keys = append(keys, key)
	}
	return strings.Join(keys, "\n"), nil
}

// readKey takes the key itself, or reads it from a file.
func readKey(key string) (string, error) {
	if key == "" {
		return "", host.Invalid("--key is needed: the public key that was kept since the installation was made (cofferdam audit key)")
	}
	data, err := os.ReadFile(key)
	switch {
	case errors.Is(err, fs.ErrNotExist) && strings.Count(key, "+") >= 2:
		return key, nil
	case err != nil:
		return "", host.Invalid("--key: neither a key nor a file that can be read: %v", err)
	}
	return strings.TrimSpace(string(data)), nil
}

func readBounded(file string, in io.Reader) ([]byte, error) {
	r := in
	if file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return nil, host.Invalid("%v", err)
		}
		defer f.Close()
		r = f
	}
	data, err := io.ReadAll(io.LimitReader(r, maxReceipt+1))
	if err != nil {
		return nil, host.Invalid("%s: %v", file, err)
	}
	if len(data) > maxReceipt {
		return nil, &api.Problem{Code: "limit.size", Detail: fmt.Sprintf("%s: larger than %d MiB", file, maxReceipt>>20)}
	}
	return data, nil
}

func (h Host) tell(all []verified, account bool) error {
	ok := true
	for _, v := range all {
		ok = ok && v.OK
	}
	if h.JSON() {
		if err := h.Print(struct {
			OK    bool       `json:"ok"`
			Files []verified `json:"files"`
		}{ok, all}); err != nil {
			return err
		}
	} else {
		for _, v := range all {
			tellOne(v, h.Out)
			if account && v.OK && v.Body != nil {
				if err := tellAccount(v.Body, h.Out); err != nil {
					return err
				}
			}
		}
		if ok {
			tellCheckpoint(all, h.Out)
		}
	}
	if !ok {
		return h.Failed()
	}
	return nil
}

// tellCheckpoint prints the newest checkpoint that was seen.
func tellCheckpoint(all []verified, out io.Writer) {
	var newest *verified
	for i, v := range all {
		if v.Checkpoint != nil && (newest == nil || v.Checkpoint.Records > newest.Checkpoint.Records) {
			newest = &all[i]
		}
	}
	if newest != nil {
		fmt.Fprintf(out, "a checkpoint to keep elsewhere:\n%s", show.Text(newest.Note))
	}
}

func tellOne(v verified, out io.Writer) {
	if !v.OK {
		fmt.Fprintf(out, "%s: NOT VERIFIED\n", show.Line(v.File))
		for _, f := range v.Findings {
			fmt.Fprintf(out, "  %s\n", show.Line(f.Error()))
		}
		if v.Omitted > 0 {
			fmt.Fprintf(out, "  and %d more\n", v.Omitted)
		}
		return
	}
	what := fmt.Sprintf("%d receipts, %d records", v.Receipts, v.Records)
	if v.Task != "" {
		what = fmt.Sprintf("task %s, %d records", v.Task, v.Records)
	}
	fmt.Fprintf(out, "%s: verified: %s, signed by %s (key %s)\n", show.Line(v.File), show.Line(what), show.Line(v.Origin), show.Line(strings.Join(v.Keys, ", then ")))
	for _, id := range v.Open {
		fmt.Fprintf(out, "  task %s has records and no receipt: it has not ended, or its end was not recorded\n", show.Line(id))
	}
}
