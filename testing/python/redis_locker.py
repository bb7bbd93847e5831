"""The Redis locker decorator that Python services use: its keys, its tokens, its command sequence.

Acquire: SET key token EX expr NX, again after a delay. Release: GET key, and EXPIRE key 0 if it is the own token.
"""

import functools
import hashlib
import time
import uuid


def md5(text):
    return hashlib.md5(text.encode()).hexdigest()


def key_of(function, *arguments):
    route = function.__module__.split(".") + [function.__name__]
    return "{}:lock|{}".format(md5(":".join(route)), md5(":".join(str(argument) for argument in arguments)))


class RedisLocker:
    def __init__(self, redis, max_retry=3, retry_delay=2, timeout=10):
        self.redis = redis
        self.max_retry = max_retry
        self.retry_delay = retry_delay
        self.timeout = timeout

    def lock_on_argument(self, expr, *positions):
        def decorate(function):
            @functools.wraps(function)
            def locked(*args, **kwargs):
                key = key_of(function, *[args[position] for position in positions])
                token = str(uuid.uuid1()).replace("-", "")
                self.acquire(key, token, expr)
                try:
                    return function(*args, **kwargs)
                finally:
                    self.release(key, token)

            return locked

        return decorate

    def acquire(self, key, token, expr):
        deadline = time.monotonic() + self.timeout
        for _ in range(self.max_retry):
            if self.redis.set(key, token, ex=expr, nx=True):
                return
            if time.monotonic() > deadline:
                raise TimeoutError("acquire lock timeout")
            time.sleep(self.retry_delay)
        raise RuntimeError("acquire lock exceed max retry")

    def release(self, key, token):
        if self.redis.get(key) == token:
            self.redis.expire(key, 0)
