// The OpenID provider of the tests: the package `oidc-provider` with one client, which gets JWTs for
// the audience `abide`, and with a redirect address a second one, whose people sign in with any name.
// Writes its URL to standard output. Run by node with the package's directory, and the redirect address.

import { createRequire } from 'node:module';
import { generateKeyPairSync } from 'node:crypto';
import { createServer } from 'node:http';

const require = createRequire(`${process.argv[2]}/node_modules/`);
const { Provider } = await import(require.resolve('oidc-provider'));

const redirect = process.argv[3];
const page = {
  client_id: 'console',
  token_endpoint_auth_method: 'none',
  grant_types: ['authorization_code'],
  redirect_uris: [redirect],
  response_types: ['code'],
  id_token_signed_response_alg: 'ES256',
};

const server = createServer();
server.listen(0, '127.0.0.1', () => {
  const issuer = `http://127.0.0.1:${server.address().port}`;
  const key = generateKeyPairSync('ec', { namedCurve: 'P-256' }).privateKey;
  const provider = new Provider(issuer, {
    jwks: { keys: [{ ...key.export({ format: 'jwk' }), kid: 'first', alg: 'ES256', use: 'sig' }] },
    clients: [
      {
        client_id: 'shop',
        client_secret: 'secret-of-a-test',
        grant_types: ['client_credentials'],
        redirect_uris: [],
        response_types: [],
        id_token_signed_response_alg: 'ES256',
      },
      ...(redirect ? [page] : []),
    ],
    clientBasedCORS: () => true,
    features: {
      clientCredentials: { enabled: true },
      devInteractions: { enabled: redirect !== undefined },
      resourceIndicators: {
        enabled: true,
        getResourceServerInfo: () => ({
          scope: 'api',
          audience: 'abide',
          accessTokenTTL: 600,
          accessTokenFormat: 'jwt',
          jwt: { sign: { alg: 'ES256' } },
        }),
      },
    },
    extraTokenClaims: () => ({ org: 'acme', roles: ['bot'] }),
  });
  server.on('request', provider.callback());
  process.stdout.write(`${issuer}\n`);
});
