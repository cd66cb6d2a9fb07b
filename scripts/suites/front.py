"""A door in front of a proxy for clients that cannot use one: it asks the proxy for what they want.

`absolute`: the request's target becomes an absolute one. `connect`: the bytes go through a tunnel. One connection, one
request (and all that follows an upgrade). `bare`: bytes as they are, without the fields in answers that name a proxy.
"""

import asyncio
import contextlib


async def pump(reader, writer):
    with contextlib.suppress(OSError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    with contextlib.suppress(OSError, RuntimeError):
        writer.write_eof()


OF_PROXIES = (b"via:", b"x-cache:", b"x-cache-lookup:", b"age:", b"connection:")


async def without_fields_of_proxies(reader, writer):
    with contextlib.suppress(OSError):
        held = b""
        while data := await reader.read(65536):
            *lines, held = (held + data).split(b"\n")
            for line in lines:
                if not line.lower().startswith(OF_PROXIES):
                    writer.write(line + b"\n")
            # the rest of a line that may become such a field waits for its end
            if not any(name.startswith(held.lower()[: len(name)]) for name in OF_PROXIES):
                writer.write(held)
                held = b""
            await writer.drain()
        writer.write(held)
    with contextlib.suppress(OSError, RuntimeError):
        writer.write_eof()


async def serve(listen, proxy, origin, mode):
    async def client(reader, writer):
        try:
            to_reader, to_writer = await asyncio.open_connection("127.0.0.1", proxy)
            authority = f"127.0.0.1:{origin}"
            if mode == "connect":
                to_writer.write(f"CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n\r\n".encode())
                answer = await to_reader.readuntil(b"\r\n\r\n")
                if b" 200 " not in answer.split(b"\r\n")[0]:
                    raise OSError(answer)
            elif mode == "absolute":
                head = await reader.readuntil(b"\r\n\r\n")
                lines = head.split(b"\r\n")
                method, target, version = lines[0].split(b" ", 2)
                lines[0] = b" ".join([method, f"http://{authority}".encode() + target, version])
                named = [b"Host: " + authority.encode() if line[:5].lower() == b"host:" else line for line in lines]
                if not any(line[:8].lower() == b"upgrade:" for line in named):
                    # the next request comes on a connection of its own
                    named = [line for line in named if line[:11].lower() != b"connection:"]
                    named[1:1] = [b"Connection: close"]
                to_writer.write(b"\r\n".join(named))
            back = without_fields_of_proxies if mode == "bare" else pump
            await asyncio.gather(pump(reader, to_writer), back(to_reader, writer))
        except (OSError, asyncio.IncompleteReadError, ValueError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(client, "127.0.0.1", listen, limit=1 << 20)
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    import sys

    listen, proxy, origin = map(int, sys.argv[1:4])
    asyncio.run(serve(listen, proxy, origin, sys.argv[4]))
