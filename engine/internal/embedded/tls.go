package embedded

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"math/big"
	"time"

	"go.temporal.io/server/common/rpc/encryption"
)

const innerName = "cofferdam-engine-inner"

// innerTLS guards the listeners between the server's parts. They carry no
// tokens, so without it any local user could talk to them; the key never
// leaves this process.
type innerTLS struct {
	certificate tls.Certificate
	roots       *x509.CertPool
}

func newInnerTLS() (*innerTLS, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("inner key: %w", err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		Subject:      pkix.Name{CommonName: innerName},
		DNSNames:     []string{innerName},
		NotBefore:    time.Now().Add(-time.Hour),
		// A process does not live this long; there is nobody to renew it for.
		NotAfter:              time.Now().AddDate(50, 0, 0),
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("inner certificate: %w", err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("inner certificate: %w", err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(leaf)
	return &innerTLS{
		certificate: tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf},
		roots:       roots,
	}, nil
}

// GetInternodeServerConfig demands our certificate from who connects.
func (t *innerTLS) GetInternodeServerConfig() (*tls.Config, error) {
	return &tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{t.certificate},
		ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: t.roots,
		NextProtos: []string{"h2"},
	}, nil
}

// GetInternodeClientConfig shows our certificate and accepts no other.
func (t *innerTLS) GetInternodeClientConfig() (*tls.Config, error) {
	return &tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{t.certificate},
		RootCAs: t.roots, ServerName: innerName,
	}, nil
}

// GetFrontendServerConfig returns nil: the front is plain on loopback, guarded
// by the token.
func (t *innerTLS) GetFrontendServerConfig() (*tls.Config, error) { return nil, nil }

// GetFrontendClientConfig returns nil, as GetFrontendServerConfig.
func (t *innerTLS) GetFrontendClientConfig() (*tls.Config, error) { return nil, nil }

// GetRemoteClusterClientConfig returns nil: there is no other cluster.
func (t *innerTLS) GetRemoteClusterClientConfig(string) (*tls.Config, error) { return nil, nil }

// GetExpiringCerts returns nothing: the certificate is made at each start.
func (t *innerTLS) GetExpiringCerts(time.Duration) (expiring, expired encryption.CertExpirationMap, err error) {
	return nil, nil, nil
}
