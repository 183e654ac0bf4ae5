"""A certificate authority of the webhook's own, and the certificates that it signs."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from oci_specs.refusal import Refusal

AUTHORITY_LASTS = timedelta(days=3650)
SERVER_LASTS = timedelta(days=90)
# Clocks of nodes differ, and a certificate of the next minute is none yet.
EARLIER = timedelta(hours=1)


@dataclass(frozen=True)
class Pair:
    """A certificate and its key, both as PEM."""

    certificate: bytes
    key: bytes

    @property
    def parsed(self) -> x509.Certificate:
        """Refusal for what is no certificate."""
        try:
            return x509.load_pem_x509_certificate(self.certificate)
        except ValueError as error:
            raise _unreadable(error) from error

    def is_due(self, now: datetime) -> bool:
        """Whether a new one has to take its place: a third of its time is left, or its time has not come.

        The latter is so after the clock was set back.
        """
        start, end = self.parsed.not_valid_before_utc, self.parsed.not_valid_after_utc
        return now < start or end - now < (end - start) / 3

    def is_over(self, now: datetime) -> bool:
        return now > self.parsed.not_valid_after_utc


def authority(now: datetime) -> Pair:
    """A new one, which signs itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "mgpu admission")])
    usage = x509.KeyUsage(
        digital_signature=False,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=True,
        crl_sign=True,
        encipher_only=False,
        decipher_only=False,
    )
    made = (
        _builder(name, name, key, now, AUTHORITY_LASTS)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .sign(key, hashes.SHA256())
    )
    return _pair(made, key)


def server(by: Pair, hosts: list[str], now: datetime) -> Pair:
    """A server's, for these names. Refusal: the authority's key or certificate cannot be read."""
    try:
        signing = serialization.load_pem_private_key(by.key, None)
    except (ValueError, TypeError) as error:
        raise _unreadable(error) from error
    if not isinstance(signing, ec.EllipticCurvePrivateKey):
        raise _unreadable(ValueError("its key is of another kind"))
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, hosts[0])])
    made = (
        _builder(name, by.parsed.subject, key, now, SERVER_LASTS)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(host) for host in hosts]), critical=False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(signing.public_key()), critical=False
        )
        .sign(signing, hashes.SHA256())
    )
    return _pair(made, key)


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    now: datetime,
    lasts: timedelta,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - EARLIER)
        .not_valid_after(now + lasts)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _pair(made: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> Pair:
    pem = serialization.Encoding.PEM
    text = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return Pair(made.public_bytes(pem), text)


def _unreadable(error: Exception) -> Refusal:
    return Refusal(
        "bad-authority",
        f"the webhook's certificate authority cannot be read: {error}",
        "delete the Secret: the webhook makes a new one",
    )
