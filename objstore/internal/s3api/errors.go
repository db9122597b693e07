package s3api

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"time"

	"github.com/varvelog/varve/objstore"
)

// Failure is an error of a client library, taken apart.
type Failure struct {
	Code   string // S3's, "" if there was none
	Status int    // HTTP's, 0 if there was no answer
	Err    error
}

// skewLimit is when a refusal may be due to clocks: S3 allows 15 minutes, dates have seconds and answers take time.
const skewLimit = 10 * time.Minute

// skewed tells whether the request may have been refused for the time in its signature.
func (f Failure) skewed(a *Answer) bool {
	return f.Code == "RequestTimeTooSkewed" || f.Status == http.StatusForbidden && a.Skew.Abs() > skewLimit
}

// expired tells whether other credentials may help.
func (f Failure) expired() bool {
	return f.Code == "ExpiredToken" || f.Code == "ExpiredTokenException" || f.Code == "TokenRefreshRequired"
}

var hints = map[string]string{
	"NoSuchBucket":                 "the bucket does not exist",
	"PermanentRedirect":            "the bucket is in another region: give region=",
	"AuthorizationHeaderMalformed": "the bucket is in another region: give region=",
	"IllegalLocationConstraint":    "the bucket is in another region: give region=",
}

// classify names the class of a failure once and for all.
func classify(ctx context.Context, f Failure, a *Answer, cond objstore.Cond) (hint string, class error) {
	switch {
	case ctx.Err() != nil:
		return "", errors.Join(objstore.ErrUnavailable, ctx.Err())
	case errors.Is(f.Err, objstore.ErrDenied), errors.Is(f.Err, objstore.ErrUnavailable):
		return "", nil // credentials, classified already
	case f.skewed(a):
		return fmt.Sprintf("this machine's clock and the store's differ by %s: set the clock", a.Skew.Abs().Round(time.Second)), objstore.ErrUnavailable
	case f.expired():
		return "the credentials have expired", objstore.ErrUnavailable
	case hints[f.Code] != "":
		return hints[f.Code], nil
	case f.Status == 0 && f.Code == "":
		return noAnswer(f.Err)
	}
	return "", byCode(f, cond)
}

func noAnswer(err error) (hint string, class error) {
	if untrusted(err) {
		return "give the authority's certificate by ca_file= or AWS_CA_BUNDLE", nil
	}
	return "", objstore.ErrUnavailable
}

func untrusted(err error) bool {
	var verify *tls.CertificateVerificationError
	var authority x509.UnknownAuthorityError
	var host x509.HostnameError
	return errors.As(err, &verify) || errors.As(err, &authority) || errors.As(err, &host)
}

func byCode(f Failure, cond objstore.Cond) error {
	switch f.Code {
	case "SlowDown", "SlowDownRead", "SlowDownWrite", "Throttling", "ThrottlingException", "RequestLimitExceeded",
		"RequestThrottled", "TooManyRequests", "BandwidthLimitExceeded":
		return objstore.ErrThrottled
	case "BadDigest", "InvalidDigest", "XAmzContentSHA256Mismatch", "XAmzContentChecksumMismatch", "ContentSHA256Mismatch":
		return objstore.ErrChecksum
	case "NotImplemented", "MethodNotAllowed":
		return objstore.ErrUnsupported
	case "RequestTimeout", "IncompleteBody", "InternalError", "OperationAborted", "NoSuchUpload":
		// NoSuchUpload answers a repeated completion: the first may have made the object.
		if f.Code != "OperationAborted" || cond == (objstore.Cond{}) {
			return objstore.ErrUnavailable
		}
	}
	return byStatus(f.Status, cond)
}

func byStatus(status int, cond objstore.Cond) error {
	switch {
	case status == http.StatusPreconditionFailed || status == http.StatusConflict:
		switch {
		case cond.IfNoneMatch:
			return objstore.ErrExists
		case cond.IfMatch != "":
			return objstore.ErrPrecondition
		case status == http.StatusConflict:
			return objstore.ErrUnavailable // somebody else's write is under way
		}
		return nil
	case status == http.StatusNotFound && cond.IfMatch != "":
		return objstore.ErrPrecondition
	case status == http.StatusNotFound:
		return objstore.ErrNotFound
	case status == http.StatusUnauthorized || status == http.StatusForbidden:
		return objstore.ErrDenied
	case status == http.StatusTooManyRequests:
		return objstore.ErrThrottled
	case status == http.StatusNotImplemented || status == http.StatusMethodNotAllowed:
		return objstore.ErrUnsupported
	case status >= 500 || status == http.StatusRequestTimeout || status == 499:
		return objstore.ErrUnavailable
	}
	return nil
}

// Error is a failed request: what, where, why and what to do.
type Error struct {
	Op, Key string
	Store   string // host of the store, and bucket
	Class   error  // one of objstore's, or nil
	Hint    string
	Failure
}

func (e *Error) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s at %s", e.Op, e.Key, e.Store)
	if e.Class != nil {
		fmt.Fprintf(&b, ": %s", strings.ReplaceAll(e.Class.Error(), "\n", ", "))
	}
	if e.Status != 0 {
		fmt.Fprintf(&b, ": HTTP %d", e.Status)
	}
	if e.Code != "" {
		fmt.Fprintf(&b, " %s", e.Code)
	}
	if e.Hint != "" {
		fmt.Fprintf(&b, ": %s", e.Hint)
	}
	fmt.Fprintf(&b, ": %s", Redact(e.Err.Error()))
	return b.String()
}

func (e *Error) Unwrap() []error {
	if e.Class == nil {
		return []error{e.Err}
	}
	return []error{e.Class, e.Err}
}

var secrets = regexp.MustCompile(`(?i)(x-amz-(?:signature|credential|security-token)|credential|signature|authorization|aws_?access_?key_?id|` +
	`aws_?secret_?access_?key|secret_?access_?key|session_?token|web_?identity_?token)(["']?\s*[=:]\s*|>)["']?(?:AWS4-HMAC-SHA256\s+)?[^\s&"',<]+|` +
	`\b(?:AKIA|ASIA)[A-Z0-9]{12,}`)

// Redact takes access keys, signatures and tokens out of a text that may be logged.
func Redact(s string) string {
	return secrets.ReplaceAllStringFunc(s, func(m string) string {
		if i := strings.IndexAny(m, "=:>"); i > 0 {
			return m[:i+1] + "REDACTED"
		}
		return "REDACTED"
	})
}
