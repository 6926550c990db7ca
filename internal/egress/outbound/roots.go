package outbound

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"os"
)

// ReadRoots gives whom certificates are verified under: the system's
// authorities and those of a PEM file, for the --roots flag; and the text of
// that file. An empty path gives nil, which stands for the system's alone.
func ReadRoots(path string) (pool *x509.CertPool, text []byte, err error) {
	if path == "" {
		return nil, nil, nil
	}
	if text, err = os.ReadFile(path); err != nil {
		return nil, nil, fmt.Errorf("--roots: %w", err)
	}
	if pool, err = x509.SystemCertPool(); err != nil {
		return nil, nil, fmt.Errorf("--roots: the system's authorities: %w", err)
	}
	if err := addRoots(pool, text, path); err != nil {
		return nil, nil, err
	}
	return pool, text, nil
}

// addRoots adds every certificate of a PEM text, which holds nothing else.
func addRoots(pool *x509.CertPool, text []byte, path string) error {
	n := 0
	for rest := bytes.TrimSpace(text); len(rest) > 0; n++ {
		block, after := pem.Decode(rest)
		if block == nil || block.Type != "CERTIFICATE" {
			return fmt.Errorf("--roots: %s: block %d is not a PEM certificate", path, n+1)
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return fmt.Errorf("--roots: %s: certificate %d: %w", path, n+1, err)
		}
		pool.AddCert(cert)
		rest = bytes.TrimSpace(after)
	}
	if n == 0 {
		return fmt.Errorf("--roots: %s: no certificate in it", path)
	}
	return nil
}
