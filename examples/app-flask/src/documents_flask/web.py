"""The web application: `flask --app documents_flask.web run`, or gunicorn with `documents_flask.web:create_app()`."""

from flask import Flask
from sqlalchemy import create_engine
from werkzeug.exceptions import HTTPException

from coatcheck import InvalidParams, StoreUnavailable, sync
from documents_flask.documents import Answer, blueprint
from documents_flask.jobs import Settings, compose
from documents_flask.rows import Base

MAX_BODY_BYTES = 1 << 20
"""Anybody can post to the callback address, so what is read before it is checked is bounded."""


def create_app(settings: Settings | None = None) -> Flask:
    """Return the web application; the app of coatcheck opens at its first call, in each process that forks."""
    settings = settings or Settings.from_env()
    engine = create_engine(settings.database_url)
    Base.metadata.create_all(engine)  # an application that lasts has migrations
    engine.dispose()  # forks must not share a connection
    web = Flask(__name__)
    web.config["MAX_CONTENT_LENGTH"] = MAX_BODY_BYTES
    web.extensions["coatcheck"] = compose(sync.App, settings)
    web.extensions["engine"] = engine
    web.register_blueprint(blueprint)
    web.register_error_handler(HTTPException, tell)
    web.register_error_handler(InvalidParams, refuse)
    web.register_error_handler(StoreUnavailable, postpone)
    return web


def tell(error: HTTPException) -> Answer:
    """Tell a client in JSON what Flask would tell in HTML."""
    return {"error": error.description}, error.code or 500


def refuse(error: InvalidParams) -> Answer:
    """Tell a client what is wrong with its document; these messages are meant for it, and hold no secrets."""
    return {"error": str(error)}, 400


def postpone(_: StoreUnavailable) -> Answer:
    """Tell a client to come again: nothing was saved."""
    return {"error": "try again in a moment"}, 503, {"retry-after": "5"}
